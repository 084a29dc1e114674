"""Ids that were minted inside a call: the recordings write ``@mint:JOB`` (several: ``@mint:JOB:1``, ... in mint order),
and ``@sid:EVT`` for the stream id that belongs to one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError

_PLACEHOLDER = re.compile(rb"@mint:([A-Z]{3})(:\d+)?")
_ID = re.compile(rb"(JOB|EVT|GRP)[0-9A-Za-z]{11}")


def placeholders(vector: Any, found: Any) -> Callable[[Any], Any]:
    """Returns what puts placeholders for the ids in `found` that `vector` (its recorded form) does not name."""
    recorded = json.dumps(vector).encode("utf-8")
    numbered = {match[1] for match in _PLACEHOLDER.finditer(recorded) if match[2]}
    named = {match[1] for match in _PLACEHOLDER.finditer(recorded)}
    if not named:
        return lambda value: value
    known = {match[0] for match in _ID.finditer(recorded)}
    fresh = sorted({match[0] for text in _texts(found) for match in _ID.finditer(text)} - known)
    names: dict[bytes, bytes] = {}
    count: dict[bytes, int] = {}
    for one in fresh:
        kind = one[:3]
        if kind not in named:
            continue
        count[kind] = count.get(kind, 0) + 1
        end = kind + (b":%d" % count[kind] if kind in numbered or count[kind] > 1 else b"")
        names[one] = b"@mint:" + end
        try:
            names[ids.parse(one).stream_id.encode("ascii")] = b"@sid:" + end
        except BadInputError:
            continue
    if not names:
        return lambda value: value
    pattern = re.compile(b"|".join(re.escape(name) for name in names))

    def put(value: Any) -> Any:
        return _mapped(value, lambda text: pattern.sub(lambda match: names[match[0]], text))

    return put


def _mapped(value: Any, change: Callable[[bytes], bytes]) -> Any:
    if isinstance(value, bytes):
        return change(value)
    if isinstance(value, str):
        return change(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        return {_mapped(k, change): _mapped(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_mapped(part, change) for part in value)
    return value


def _texts(value: Any) -> list[bytes]:
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, str):
        return [value.encode("utf-8", "surrogateescape")]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, list | tuple | set):
        return [text for part in value for text in _texts(part)]
    return []
