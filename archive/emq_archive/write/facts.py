"""What is known of a stream at one moment, and whether two moments belong to one life of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emq_archive.model import FIRST_ID, StreamId, parse_id


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group: how many entries it has `pending`, how many are not delivered to it (None: the server can't
    tell), the last that was `delivered`, and the lowest entry that it still needs (None: none)."""

    name: str
    pending: int
    needs: StreamId | None
    undelivered: int | None
    delivered: StreamId

    @classmethod
    def of(cls, reply: Any) -> Group:
        """From ``{name, pending, lowest id needed, undelivered, last delivered}`` as the scripts answer it."""
        name, pending, needs, undelivered, delivered = reply
        return cls(
            name.decode("utf-8", "backslashreplace"),
            int(pending),
            parse_id(needs) if needs else None,
            None if int(undelivered) < 0 else int(undelivered),
            parse_id(delivered),
        )


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """A stream at one moment of the server's clock (`now_ms`, unix ms).

    `replid`, `offset`: of the server's replication; they change, or fall, where its data became another's.
    `last_generated` is the highest id that was ever added in this life, `entries_added` how many were, `max_deleted`
    the highest id that was deleted by name. The digests are of the entries that stand first and last.
    """

    now_ms: int
    run_id: str
    replid: str = ""
    offset: int = 0
    exists: bool = False
    length: int = 0
    last_generated: StreamId = FIRST_ID
    entries_added: int = 0
    max_deleted: StreamId = FIRST_ID
    first: StreamId | None = None
    first_digest: bytes = b""
    last: StreamId | None = None
    last_digest: bytes = b""
    groups: tuple[Group, ...] = ()

    @classmethod
    def of(cls, reply: Any) -> StreamFacts:
        """From the reply of ``stream_facts``."""
        now_ms, run_id, replid, offset, exists, *more = reply
        server = int(now_ms), run_id.decode("ascii"), replid.decode("ascii"), int(offset)
        if exists != 1:
            return cls(*server)
        length, generated, added, deleted, first, first_digest, last, last_digest, groups = more
        return cls(
            *server,
            exists=True,
            length=int(length),
            last_generated=parse_id(generated),
            entries_added=int(added),
            max_deleted=parse_id(deleted),
            first=parse_id(first) if first else None,
            first_digest=first_digest,
            last=parse_id(last) if last else None,
            last_digest=last_digest,
            groups=tuple(Group.of(group) for group in groups),
        )

    @property
    def removed(self) -> int | None:
        """How many of the entries that were added are gone; None where the server does not count them."""
        return self.entries_added - self.length if self.entries_added >= self.length else None

    def same_life(self, before: StreamFacts) -> bool:
        """Whether nothing says that the stream was made anew, or taken back in time, since `before`: the server lives
        on and did not become another's replica meanwhile, nothing fell that only rises, an entry that stood first or
        last then still has its bytes, and where another stands first now, entries were removed since.

        A restart or a failover may lose the newest entries, and others may come in their places."""
        if (self.run_id, self.replid) != (before.run_id, before.replid) or self.offset < before.offset:
            return False
        if not self.exists:
            return not before.exists
        fell = (
            self.last_generated < before.last_generated
            or self.entries_added < before.entries_added
            or self.max_deleted < before.max_deleted
        )
        other_first = self.first is not None and self.first == before.first and self.first_digest != before.first_digest
        other_last = self.last is not None and self.last == before.last and self.last_digest != before.last_digest
        moved = self.first is not None and before.first is not None and self.first != before.first
        gone, gone_before = self.removed, before.removed
        too_few = gone is not None and gone_before is not None and gone < gone_before + moved
        return not (fell or other_first or other_last or too_few)
