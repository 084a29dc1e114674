"""Whole keyspaces in the notation of the recordings: put one on a server, read one back, compare two.

A key is ``{"zset": {member: score}}``, ``{"hash": {...}}`` (or a list of pairs), ``{"list": [...]}``,
``{"set": [...]}``, ``{"string": ...}`` or ``{"stream": {...}}``. A score ``"@+N"`` is the server's time plus N ms; a
value that is not UTF-8 is ``{"base64": ...}``.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Arg, Server

TOLERANCE_MS = 2000
_OFFSET = re.compile(r"@([+-]\d{1,15})")

Keyspace = dict[str, dict[str, Any]]


def raw(value: Any) -> bytes:
    """A recorded value as the bytes it stands for."""
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error:
            raise BadInputError("a base64 value can't be decoded") from None
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value).encode("ascii")
    raise BadInputError(f"a value is {value!r}", fix="text, a number or {'base64': ...}")


def offset(value: Any) -> int | None:
    """N of ``"@+N"``, or None for anything else."""
    match = _OFFSET.fullmatch(value) if isinstance(value, str) else None
    return int(match[1]) if match else None


def instant(value: Any, now_ms: int) -> Any:
    """`value` with ``"@+N"`` replaced by `now_ms` + N."""
    shift = offset(value)
    return value if shift is None else now_ms + shift


def pairs(value: Any) -> list[tuple[bytes, bytes]]:
    """A recorded hash, in either notation, as pairs."""
    items = value.items() if isinstance(value, dict) else value
    return [(raw(name), raw(content)) for name, content in items]


def load_keyspace(server: Server, given: Keyspace, now_ms: int) -> None:
    """Writes a recorded keyspace to an empty server; `now_ms` is the server's clock at loading."""
    for key, content in given.items():
        for command in _load_commands(key, content, now_ms):
            server.write(*command)


def _load_commands(key: str, content: dict[str, Any], now_ms: int) -> list[tuple[Arg, ...]]:
    if not isinstance(content, dict) or len(content) != 1:
        raise BadInputError(f"key {key} is {str(content)[:60]}", fix="one of zset, hash, list, set, string, stream")
    kind, value = next(iter(content.items()))
    if kind == "zset":
        scored = [x for member, score in value.items() for x in (instant(score, now_ms), member.encode("utf-8"))]
        return [("ZADD", key, *scored)] if scored else []
    if kind == "hash":
        flat = [x for pair in pairs(value) for x in pair]
        return [("HSET", key, *flat)] if flat else []
    if kind in ("list", "set"):
        members = [raw(v) for v in value]
        return [("RPUSH" if kind == "list" else "SADD", key, *members)] if members else []
    if kind == "string":
        return [("SET", key, raw(value))]
    if kind == "stream":
        return _stream_commands(key, value)
    raise BadInputError(f"key {key} is a {kind}", fix="one of zset, hash, list, set, string, stream")


def _stream_commands(key: str, stream: dict[str, Any]) -> list[tuple[Arg, ...]]:
    commands: list[tuple[Arg, ...]] = [
        ("XADD", key, entry_id, *[raw(v) for v in fields]) for entry_id, fields in stream.get("entries", [])
    ]
    for group in stream.get("groups", []):
        commands.append(("XGROUP", "CREATE", key, group["name"], "0", "MKSTREAM"))
        # Pending entries are claimed for the consumer that held them, without a delivery of others.
        commands += [
            ("XCLAIM", key, group["name"], consumer, 0, entry_id, "FORCE", "JUSTID")
            for entry_id, consumer in group.get("pending", [])
        ]
        commands.append(("XGROUP", "SETID", key, group["name"], group["last_delivered"]))
    if stream.get("last_id"):
        commands.append(("XSETID", key, stream["last_id"]))
    return commands


_READ: dict[str, tuple[str | int, ...]] = {
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "hash": ("HGETALL",),
    "list": ("LRANGE", 0, -1),
    "set": ("SMEMBERS",),
    "string": ("GET",),
    "stream": ("XRANGE", "-", "+"),
}


def dump_keyspace(server: Server) -> dict[str, dict[str, Any]]:
    """Every key of the server, values as bytes, scores as floats, hashes as dicts."""
    keys = sorted(set(server.scan()))
    kinds = [kind.decode() for kind in server.read_many([("TYPE", key) for key in keys])]
    known = [(kind, key) for kind, key in zip(kinds, keys, strict=True) if kind in _READ]
    replies = server.read_many([(_READ[kind][0], key, *_READ[kind][1:]) for kind, key in known])
    return {
        key.decode("utf-8", "backslashreplace"): {kind: _shape(kind, reply)}
        for (kind, key), reply in zip(known, replies, strict=True)
    }


def _shape(kind: str, reply: Any) -> Any:
    if kind == "zset":
        return {member: float(score) for member, score in zip(reply[::2], reply[1::2], strict=True)}
    if kind == "hash":
        return dict(zip(reply[::2], reply[1::2], strict=True))
    return set(reply) if kind == "set" else reply


def expected_keyspace(then: Keyspace) -> dict[str, dict[str, Any]]:
    """A recorded keyspace in the shape of dump_keyspace; scores ``"@+N"`` stay offsets."""
    shaped: dict[str, dict[str, Any]] = {}
    for key, content in then.items():
        kind, value = next(iter(content.items()))
        if kind == "zset":
            shaped[key] = {
                kind: {m.encode("utf-8"): s if offset(s) is not None else float(s) for m, s in value.items()}
            }
        elif kind == "hash":
            shaped[key] = {kind: dict(pairs(value))}
        elif kind == "set":
            shaped[key] = {kind: {raw(v) for v in value}}
        elif kind == "list":
            shaped[key] = {kind: [raw(v) for v in value]}
        else:
            shaped[key] = {kind: raw(value)}
    return shaped


def differences(wanted: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]], call_ms: int) -> list[str]:
    """What differs between an expected keyspace and one found; scores ``"@+N"`` within TOLERANCE_MS of the call."""
    lines: list[str] = []
    for key in sorted(wanted.keys() | found.keys()):
        old, new = wanted.get(key), found.get(key)
        if old is None or new is None or old.keys() != new.keys():
            lines += [f"- {key} {_show(old)}"] * (old is not None) + [f"+ {key} {_show(new)}"] * (new is not None)
            continue
        kind = next(iter(old))
        if kind in ("zset", "hash"):
            lines += _map_differences(key, old[kind], new[kind], call_ms)
        elif old[kind] != new[kind]:
            lines += [f"- {key} {_show(old[kind])}", f"+ {key} {_show(new[kind])}"]
    return lines


def _map_differences(key: str, old: dict[bytes, Any], new: dict[bytes, Any], call_ms: int) -> list[str]:
    lines: list[str] = []
    for member in sorted(old.keys() | new.keys()):
        name = f"{key} {member.decode('utf-8', 'backslashreplace')}"
        if member not in new:
            lines.append(f"- {name} = {_show(old[member])}")
        elif member not in old:
            lines.append(f"+ {name} = {_show(new[member])}")
        elif not _same(old[member], new[member], call_ms):
            shown = new[member]
            if offset(old[member]) is not None:
                shown = f"@{new[member] - call_ms:+.0f}"
            lines += [f"- {name} = {_show(old[member])}", f"+ {name} = {_show(shown)}"]
    return lines


def _same(old: Any, new: Any, call_ms: int) -> bool:
    shift = offset(old)
    return bool(old == new) if shift is None else abs(new - call_ms - shift) <= TOLERANCE_MS


def _show(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
