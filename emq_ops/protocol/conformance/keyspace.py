"""Whole keyspaces in the notation of the recordings: put one on a server, read one back, compare two.

A key is ``{"zset": {member: score}}``, ``{"hash": {...}}`` (or a list of pairs), ``{"list": [...]}``,
``{"set": [...]}``, ``{"string": ...}`` or ``{"stream": {...}}``, and ``"px": N`` beside it where it expires in N ms;
``"field_px": {field: N}``: fields of a hash that do. A score ``"@+N"`` is the server's time plus N ms; a value that is
not UTF-8 is ``{"base64": ...}``.
"""

from __future__ import annotations

from typing import Any

from emq_ops.protocol.conformance import streams
from emq_ops.protocol.conformance.values import TOLERANCE_MS, instant, offset, raw, show
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.server import Arg, Server

Keyspace = dict[str, dict[str, Any]]
_KINDS = "one of zset, hash, list, set, string, stream"
_EXPIRY = ("px", "field_px")


def pairs(value: Any) -> list[tuple[bytes, bytes]]:
    """A recorded hash, in either notation, as pairs."""
    items = value.items() if isinstance(value, dict) else value
    return [(raw(name), raw(content)) for name, content in items]


def load_keyspace(server: Server, given: Keyspace, now_ms: int) -> None:
    """Writes a recorded keyspace to an empty server; `now_ms` is the server's clock at loading."""
    commands = [command for key, content in given.items() for command in _load_commands(key, content, now_ms)]
    for reply in server.write_each(commands):
        if isinstance(reply, EmqError):
            raise reply


def _content(key: str, recorded: dict[str, Any]) -> tuple[str, Any]:
    kinds = [name for name in recorded if name not in _EXPIRY] if isinstance(recorded, dict) else []
    if len(kinds) != 1:
        raise BadInputError(f"key {key} is {str(recorded)[:60]}", fix=_KINDS)
    return kinds[0], recorded[kinds[0]]


def _load_commands(key: str, recorded: dict[str, Any], now_ms: int) -> list[tuple[Arg, ...]]:
    kind, value = _content(key, recorded)
    commands = _value_commands(key, kind, value, now_ms)
    if "px" in recorded:
        commands.append(("PEXPIRE", key, recorded["px"]))
    for field, px in recorded.get("field_px", {}).items():
        commands.append(("HPEXPIRE", key, px, "FIELDS", 1, raw(field)))
    return commands


def _value_commands(key: str, kind: str, value: Any, now_ms: int) -> list[tuple[Arg, ...]]:
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
        return streams.commands(key, value)
    raise BadInputError(f"key {key} is a {kind}", fix=_KINDS)


_READ: dict[str, tuple[str | int, ...]] = {
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "hash": ("HGETALL",),
    "list": ("LRANGE", 0, -1),
    "set": ("SMEMBERS",),
    "string": ("GET",),
    "stream": ("XLEN",),
}


def dump_keyspace(server: Server, *, expiry: bool = False) -> dict[str, dict[str, Any]]:
    """Every key of the server, values as bytes, scores as floats, hashes as dicts.

    With `expiry` also ``px`` and ``field_px`` in ms, which no two looks find alike.
    """
    keys = sorted(set(server.scan()))
    kinds = [kind.decode() for kind in server.read_many([("TYPE", key) for key in keys])]
    known = [(kind, key) for kind, key in zip(kinds, keys, strict=True) if kind in _READ]
    replies = server.read_many([(_READ[kind][0], key, *_READ[kind][1:]) for kind, key in known])
    expiries = server.read_many([("PTTL", key) for _, key in known]) if expiry else [-1] * len(known)
    shaped = {}
    for (kind, key), reply, px in zip(known, replies, expiries, strict=True):
        value = streams.read(server, key) if kind == "stream" else _shape(kind, reply)
        found: dict[str, Any] = {kind: value}
        if px >= 0:
            found["px"] = px
        if expiry and kind == "hash" and b"lock" in value and (fields := _field_px(server, key)):
            found["field_px"] = fields
        shaped[key.decode("utf-8", "backslashreplace")] = found
    return shaped


def _field_px(server: Server, key: bytes) -> dict[bytes, int]:
    """Only the field ``lock`` of a row ever expires."""
    [px] = server.read("HPTTL", key, "FIELDS", 1, "lock")
    return {b"lock": px} if px >= 0 else {}


def _shape(kind: str, reply: Any) -> Any:
    if kind == "zset":
        return {member: float(score) for member, score in zip(reply[::2], reply[1::2], strict=True)}
    if kind == "hash":
        return dict(zip(reply[::2], reply[1::2], strict=True))
    return set(reply) if kind == "set" else reply


def expected_keyspace(then: Keyspace) -> dict[str, dict[str, Any]]:
    """A recorded keyspace in the shape of dump_keyspace; scores ``"@+N"`` stay offsets."""
    shaped: dict[str, dict[str, Any]] = {}
    for key, recorded in then.items():
        kind, value = _content(key, recorded)
        found = {kind: _expected(kind, value)}
        if "px" in recorded:
            found["px"] = recorded["px"]
        if recorded.get("field_px"):
            found["field_px"] = {raw(field): px for field, px in recorded["field_px"].items()}
        shaped[key] = found
    return shaped


def _expected(kind: str, value: Any) -> Any:
    if kind == "zset":
        return {m.encode("utf-8"): s if offset(s) is not None else float(s) for m, s in value.items()}
    if kind == "hash":
        return dict(pairs(value))
    if kind == "set":
        return {raw(v) for v in value}
    if kind == "list":
        return [raw(v) for v in value]
    return streams.expected(value) if kind == "stream" else raw(value)


def differences(wanted: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]], call_ms: int) -> list[str]:
    """What differs between an expected keyspace and one found; scores ``"@+N"`` within TOLERANCE_MS of the call."""
    lines: list[str] = []
    for key in sorted(wanted.keys() | found.keys()):
        old, new = wanted.get(key), found.get(key)
        if old is None or new is None or old.keys() != new.keys():
            lines += [f"- {key} {show(old)}"] * (old is not None) + [f"+ {key} {show(new)}"] * (new is not None)
            continue
        kind, value = _content(key, old)
        if kind in ("zset", "hash", "stream"):
            lines += _map_differences(key, value, new[kind], call_ms)
        elif value != new[kind]:
            lines += [f"- {key} {show(value)}", f"+ {key} {show(new[kind])}"]
        lines += _expiry_differences(key, old, new)
    return lines


def _expiry_differences(key: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    found, wanted = ({**v.get("field_px", {}), b"": v.get("px", 0)} for v in (new, old))
    if found.keys() == wanted.keys() and all(abs(found[name] - wanted[name]) <= TOLERANCE_MS for name in found):
        return []
    return [f"- {key} expires in ms {show(wanted)}", f"+ {key} expires in ms {show(found)}"]


def _map_differences(key: str, old: dict[Any, Any], new: dict[Any, Any], call_ms: int) -> list[str]:
    lines: list[str] = []
    for member in sorted(old.keys() | new.keys()):
        name = f"{key} {show(member)}"
        if member not in new:
            lines.append(f"- {name} = {show(old[member])}")
        elif member not in old:
            lines.append(f"+ {name} = {show(new[member])}")
        elif not _same(old[member], new[member], call_ms):
            shown = new[member]
            if offset(old[member]) is not None:
                shown = f"@{new[member] - call_ms:+.0f}"
            lines += [f"- {name} = {show(old[member])}", f"+ {name} = {show(shown)}"]
    return lines


def _same(old: Any, new: Any, call_ms: int) -> bool:
    shift = offset(old)
    return bool(old == new) if shift is None else abs(new - call_ms - shift) <= TOLERANCE_MS
