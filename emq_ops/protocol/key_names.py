"""What a key's name says: which queue, row, lane or stream it is of (`keyspace` builds them)."""

from __future__ import annotations

import re

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import queue_name, stream_name


def row_of_name(name: bytes) -> bytes | None:
    """The job whose row a key is, by the key's name after the base; None for any other key."""
    kind, _, rest = name.partition(b":")
    return rest if kind == b"job" and rest[:3] == b"JOB" and is_valid(rest) else None


def lane_of_name(name: bytes) -> bytes | None:
    """The group whose lane a key is, well-formed or not; None for any other key."""
    match = re.fullmatch(rb"g:(.+):pending", name, re.DOTALL)
    return match[1] if match else None


_QUEUE_KEY = re.compile(r"emq:\{([^{}]+)\}:(.+)", re.DOTALL)


def queue_of_key(key: bytes) -> str | None:
    """The queue that `key` belongs to, or None where it is no EchoMQ key."""
    match = _QUEUE_KEY.fullmatch(key.decode("utf-8", "replace"))
    if not match:
        return None
    try:
        return queue_name(match[1])
    except BadInputError:
        return None


def queue_of_lease(key: bytes) -> str | None:
    """The queue whose lease `key` is, or None where it is none."""
    match = re.fullmatch(r"emq-ops:\{([^{}]+)\}:lease", key.decode("utf-8", "replace"), re.DOTALL)
    try:
        return queue_name(match[1]) if match else None
    except BadInputError:
        return None


def stream_of_key(key: bytes) -> str | None:
    """The name of the event stream whose key `key` is, or None where it is no stream's key."""
    match = _QUEUE_KEY.fullmatch(key.decode("utf-8", "replace"))
    if not match or not match[2].startswith("stream:"):
        return None
    try:
        return stream_name(match[2].removeprefix("stream:"))
    except BadInputError:
        return None
