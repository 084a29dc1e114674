"""Streams in the notation of the recordings: ``{"stream": {"entries", "groups", "last_id", "deleted"}}``."""

from __future__ import annotations

from typing import Any

from emq_ops.protocol.conformance.values import raw
from emq_ops.protocol.server import Arg, Server

Shape = dict[str, Any]
"""``entries``: (id, names and values) in order; ``groups``: by name, the last id delivered and what is pending as
(id, consumer, deliveries); ``last_id``."""


def commands(key: str, stream: dict[str, Any]) -> list[tuple[Arg, ...]]:
    """The commands that make the recorded stream where there is none."""
    made: list[tuple[Arg, ...]] = [
        ("XADD", key, entry_id, *[raw(v) for v in fields]) for entry_id, fields in stream.get("entries", [])
    ]
    for group in stream.get("groups", []):
        made.append(("XGROUP", "CREATE", key, group["name"], "0", "MKSTREAM"))
        made += [_claim(key, group["name"], *pending) for pending in group.get("pending", [])]
        made.append(("XGROUP", "SETID", key, group["name"], group["last_delivered"]))
    made += [("XDEL", key, entry_id) for entry_id in stream.get("deleted", [])]
    if stream.get("last_id"):
        if not stream.get("entries") and not stream.get("groups"):
            made += [("XGROUP", "CREATE", key, "x", "$", "MKSTREAM"), ("XGROUP", "DESTROY", key, "x")]
        made.append(("XSETID", key, stream["last_id"]))
    return made


def _claim(
    key: str, group: str, entry_id: str, consumer: str, deliveries: int = 1, idle_ms: int = 0
) -> tuple[Arg, ...]:
    """Gives a consumer an entry that it holds, without a delivery of others."""
    counted = ("IDLE", idle_ms, "RETRYCOUNT", deliveries)
    return ("XCLAIM", key, group, consumer, 0, entry_id, *counted, "FORCE", "JUSTID")


def read(server: Server, key: bytes) -> Shape:
    """A stream as it stands."""
    entries = server.read("XRANGE", key, "-", "+")
    info = _named(server.read("XINFO", "STREAM", key))
    groups = {}
    for reply in server.read("XINFO", "GROUPS", key):
        group = _named(reply)
        name = group[b"name"]
        found = server.read("XPENDING", key, name, "-", "+", 10_000)
        groups[name] = (group[b"last-delivered-id"], [(entry, who, int(often)) for entry, who, _, often in found])
    return {
        "entries": [(entry_id, list(fields)) for entry_id, fields in entries if fields is not None],
        "groups": groups,
        "last_id": info[b"last-generated-id"],
    }


def expected(stream: dict[str, Any]) -> Shape:
    """A recorded stream in the shape of `read`."""
    entries = [(raw(entry_id), [raw(v) for v in fields]) for entry_id, fields in stream.get("entries", [])]
    groups = {
        raw(group["name"]): (
            raw(group["last_delivered"]),
            [(raw(entry), raw(who), int(often[0]) if often else 1) for entry, who, *often in group.get("pending", [])],
        )
        for group in stream.get("groups", [])
    }
    last = stream.get("last_id")
    return {"entries": entries, "groups": groups, "last_id": raw(last) if last else entries[-1][0]}


def _named(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
