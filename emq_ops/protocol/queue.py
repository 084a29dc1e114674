"""A queue on a server: what every transition takes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import Keys, keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

MAX_SPAN_MS = 3_155_760_000_000
"""A hundred years: a lease or delay above it is a mistake in the unit."""
MIN_INSTANT_MS, MAX_INSTANT_MS = 1_577_836_800_000, 4_102_444_800_000
"""2020-01-01 and 2100-01-01 in unix ms: seconds or microseconds taken for milliseconds fall outside."""


class Queue:
    """One queue: `server`, `name` (checked) and `keys`. Raises BadInputError for a name that can't be one."""

    __slots__ = ("keys", "name", "server")

    def __init__(self, server: Server, name: str | bytes) -> None:
        self.server = server
        self.keys: Keys = keys_of(name)
        self.name = self.keys.queue

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def run(self, script: str, keys: Sequence[str], *args: Arg, readonly: bool = False) -> Any:
        """The raw reply of the transition ``lua/<script>.lua``."""
        return self.server.run(load(script), keys, args, readonly=readonly)

    def run_many(self, script: str, calls: Sequence[tuple[Sequence[str], Sequence[Arg]]]) -> list[Any]:
        """The raw replies (or EmqError values) of many calls of one transition in one flush."""
        return self.server.run_many(load(script), calls)


def positive(value: int, what: str) -> int:
    """`value` checked as a whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value > MAX_SPAN_MS:
        raise BadInputError(f"{what} is {value!r}", fix="give a whole number of 1 or more")
    return value


def not_negative(value: int, what: str) -> int:
    """`value` checked as a whole number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0 or value > MAX_SPAN_MS:
        raise BadInputError(f"{what} is {value!r}", fix="give a whole number of 0 or more")
    return value


def instant(value: int, what: str) -> int:
    """`value` checked as unix ms of our days."""
    if isinstance(value, bool) or not isinstance(value, int) or not MIN_INSTANT_MS <= value <= MAX_INSTANT_MS:
        raise BadInputError(
            f"{what} is {value!r}, which is no unix time in ms of our days", fix="milliseconds, not seconds"
        )
    return value


def blob(value: bytes | str, what: str) -> bytes:
    """`value` as bytes; text becomes UTF-8. Raises BadInputError for anything else."""
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise BadInputError(f"{what} is a {type(value).__name__}", fix="give bytes or text")
