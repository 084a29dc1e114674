"""Payloads: what an application has, as bytes and back. On the wire nothing says of which kind the bytes are."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.extras import need
from emq_ops.protocol.queue import blob


@dataclass(frozen=True, slots=True)
class Codec:
    """`encode` makes bytes of a value, `decode` the value of bytes. Both raise BadInputError for what can't be."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _to_json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as fault:
        raise BadInputError(
            f"a payload that JSON can't say: {fault}", fix="give plain values, or another codec"
        ) from None


def _from_json(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except ValueError as fault:
        raise BadInputError(f"a payload that is no JSON: {fault}", fix="take the codec that it was made with") from None


def _to_msgpack(value: Any) -> bytes:
    try:
        return bytes(need("msgpack").packb(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise BadInputError(f"a payload that msgpack can't say: {fault}", fix="give plain values") from None


def _from_msgpack(payload: bytes) -> Any:
    try:
        return need("msgpack").unpackb(payload)
    except ValueError as fault:
        what = f"a payload that is no msgpack: {fault}"
        raise BadInputError(what, fix="take the codec that it was made with") from None


JSON = Codec("json", _to_json, _from_json)
"""Compact UTF-8; text, numbers, lists, dicts, None. NaN and bytes are refused."""
MSGPACK = Codec("msgpack", _to_msgpack, _from_msgpack)
"""As JSON, and bytes; needs ``pip install 'emq-ops[msgpack]'`` (MissingExtraError)."""
BYTES = Codec("bytes", lambda value: blob(value, "payload"), bytes)
"""Bytes as they are; text as UTF-8."""
