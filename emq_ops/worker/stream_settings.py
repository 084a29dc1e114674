"""What a stream's consumer can be told, and what its handler is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import stream_name
from emq_ops.protocol.queue import not_negative, positive
from emq_ops.protocol.transitions.groups import Member


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How a stream is consumed; all times are ms. Raises BadInputError for a value that can't be."""

    group: str
    consumer: str = ""
    """Its name in the group: `<host>-<pid>` unless given. One that stays the same finds its own entries at once after a
    restart; no two may run under one name."""
    start: Literal["new", "head"] = "new"
    """Where a group that is not there yet begins: with what comes, or at the head of the stream."""
    min_idle: int = 30_000
    """So long an entry stands still before another consumer of the group takes it over."""
    count: int = 100
    """Entries a read."""
    beat: int = 1_000
    """How often idle entries are looked for, and how long a read waits."""
    attempts: int | None = 5
    """A failure at this delivery is the last: the entry goes to `dead`. None: it comes again for ever."""
    dead: str = ""
    """The dead-letter stream: `<stream>.dead` unless given."""

    def __post_init__(self) -> None:
        if self.start not in ("new", "head"):
            raise BadInputError(f"no start '{self.start}'", fix="new, head")
        Member("x", self.group, self.consumer or "x")
        for name in ("count", "beat"):
            positive(getattr(self, name), name)
        not_negative(self.min_idle, "min_idle")
        if self.attempts is not None:
            positive(self.attempts, "attempts")
        if self.dead:
            stream_name(self.dead)


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """What a handler is given. `id`: the ``EVT`` id (``""`` where its stream id is nobody's); `pairs`: names and values
    in order; `attempts`: how often it was delivered, 1 at the first; `lost()`: whether another consumer has it now."""

    queue: str
    stream: str
    id: str
    stream_id: str
    pairs: tuple[tuple[bytes, bytes], ...]
    attempts: int
    lost: Callable[[], bool]

    @property
    def fields(self) -> dict[bytes, bytes]:
        """The pairs by name; of one that stands twice the last."""
        return dict(self.pairs)
