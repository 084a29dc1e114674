"""The settings of many queues as they stand on the server: one look a queue, of one moment, all in one flush.

What is there and is no value that the YAML could say is told as it is, in words or as the raw text: it compares unequal
to anything that was applied, so it is drift like any other, and can be put back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emq_ops.deploy.model import LiveQueue, Note, instant
from emq_ops.passes.lease.owner import lease_info_of
from emq_ops.policy.scalars import format_duration
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import MAX_INSTANT_MS, MIN_INSTANT_MS
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

ITEMS = 200
"""Settings a look at the most: each is a few small reads in one script."""
SKEW_MS = 60_000
"""How far the clocks of a primary and of the replica that takes its place may differ without a word here."""
_META = {"paused": "paused", "concurrency": "concurrency", "rate": "max"}


def read_settings(server: Server, wanted: Mapping[str, Sequence[str]]) -> dict[str, LiveQueue]:
    """The settings `wanted` of each queue, and its lease. Raises what the server raises."""
    parts = [
        (queue, paths[first : first + ITEMS])
        for queue, paths in wanted.items()
        for first in range(0, max(len(paths), 1), ITEMS)
    ]
    calls = [([keys_of(queue).lease, keys_of(queue).applied], _asked(queue, paths)) for queue, paths in parts]
    found = {queue: LiveQueue() for queue in wanted}
    replies = server.run_many(load("settings_look"), calls, readonly=True)
    for (queue, paths), reply in zip(parts, replies, strict=True):
        if isinstance(reply, EmqError):
            raise reply
        now_ms, flat, note, repeats, *values = reply
        live = found[queue]
        live.now_ms, live.repeats = int(now_ms), bool(repeats)
        live.lease = lease_info_of(flat, 0) if flat else None
        live.note = _note(*note) if all(note) and note else None
        for path, value in zip(paths, values, strict=True):
            if value and value[0] == -1:
                live.unreadable[path] = value[1].decode("utf-8", "backslashreplace")
                live.settings[path] = f"unreadable: {live.unreadable[path]}"
            else:
                live.settings[path] = _value(path, value, int(now_ms))
    return found


def read_setting(server: Server, queue: str, path: str) -> Any:
    """One live setting as it is now, in the form that plans compare."""
    return read_settings(server, {queue: [path]})[queue].settings[path]


def _note(state: bytes, revision: bytes, digest: bytes) -> Note:
    number = int(revision) if revision.isdigit() and len(revision) <= 9 else 0
    return Note(text_of(state), number, text_of(digest))


def _asked(queue: str, paths: Sequence[str]) -> list[Arg]:
    args: list[Arg] = [keys_of(queue).base]
    for path in paths:
        head, _, rest = path.partition("/")
        if head in _META:
            args += ["meta", _META[head]]
        elif head == "lanes":
            lane, _, what = rest.partition("/")
            args += [what, lane]
        else:
            args += ["repeatable", rest]
    return args


def _value(path: str, raw: list[Any], now_ms: int) -> Any:
    if path.startswith("repeatables/"):
        return _repeatable(raw, now_ms)
    if path == "paused":
        return raw[0] is not None
    if path.endswith("/paused"):
        return _with_fault(bool(raw[0]), raw[1])
    whole = _whole(raw[0])
    return _with_fault(whole, raw[1]) if len(raw) > 1 else whole


def _with_fault(value: Any, fault: bytes) -> Any:
    if not fault:
        return value
    said = {True: "true", False: "false", None: "unset"}.get(value, value)
    return f"{said}, but {fault.decode()}"


def _whole(raw: bytes | None) -> int | str | None:
    if raw is None:
        return None
    return (int(raw) or None) if raw.isdigit() and len(raw) <= 18 else text_of(raw[:40])


def _repeatable(raw: list[Any], now_ms: int) -> Any:
    every, template, due, lane, dated, cron, zone = raw
    beyond = {} if lane is None else {"lane": text_of(lane)}
    if cron is not None and every is None:
        return {"cron": text_of(cron), "zone": text_of(zone or b""), "template": text_of(dated or b""), **beyond}
    if every is None and template is None:
        return None if due is None else {"row": "gone, though it is listed: it fires nothing"}
    period = _whole(every)
    value = {
        "every": format_duration(period) if isinstance(period, int) else (period or "unset"),
        "template": text_of(template or b""),
        **beyond,
    }
    if fault := _fault_of(period, due, now_ms):
        value["next"] = fault
    return value


def _fault_of(period: int | str | None, due: bytes | None, now_ms: int) -> str:
    if due is None:
        return "never: it is not listed"
    at = score_ms(due)
    if not MIN_INSTANT_MS <= at <= MAX_INSTANT_MS:
        return f"never: its next instant is {text_of(due[:40])}"
    if isinstance(period, int) and at > now_ms + period + SKEW_MS:
        return f"at {instant(at)}, more than a period away"
    return ""


def text_of(raw: bytes) -> str:
    """A template as text; bytes that are no UTF-8 can be shown and compared, not written in YAML."""
    return raw.decode("utf-8", "backslashreplace")
