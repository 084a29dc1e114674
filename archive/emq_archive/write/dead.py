"""Dead jobs into the archive, before the trim of the dead set deletes them: row, logs and what is known of each death.

The trim compares: a job may go only if it is still dead and, byte for byte, what was archived. So each archived job
comes back with the names of its row's fields and a digest that ``lua/lib/dead.lua`` makes the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from emq_archive.chunk import Batch, Chunk
from emq_archive.deadjob import dead_digest, dead_fields, dead_id
from emq_archive.local.store import SqlStore
from emq_archive.model import FIRST_ID, LAST_ID, Pair, Policy, StreamId, StreamRef, Writer, next_id
from emq_archive.ports import Remote
from emq_archive.upkeep.prune import prune
from emq_archive.write.pace import MANY, Allowance
from emq_archive.write.ship import LogShipper
from emq_ops.protocol import deadline, ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue

READ_BYTES = 4 * 1024 * 1024
READ_JOBS = 500
PAGE_JOBS = 1000
BATCH_BYTES = 16 * 1024 * 1024


class ArchivedDead(NamedTuple):
    """A dead job that was archived. `names`: its row's fields in the order of `digest`, which covers their values and
    the log lines (``dead_digest`` in Lua); `attempts` and `stalls` are of its row."""

    job: str
    names: tuple[bytes, ...]
    digest: str
    attempts: int
    stalls: int


@dataclass(slots=True)
class DeadReceipt:
    """`proven`: the jobs that may be trimmed, by id. `failed`: those that may not, and why. `waiting`: those that may
    once the next segment is shipped. `gone`: no longer dead. Counts: `folded` new records, `known` archived before,
    `shipped` and `segments` of this call; `lsn`, `head` of the log that it rests on (0 and None with ``trim_after:
    local``)."""

    proven: dict[str, ArchivedDead] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    folded: int = 0
    known: int = 0
    shipped: int = 0
    segments: int = 0
    lsn: int = 0
    head: str | None = None


class DeadArchive:
    """Archives dead jobs of one queue as stream ``dead``. One thread. `ships`: how often a trim alone may ship; None:
    each does, and what waits goes at once."""

    def __init__(
        self,
        queue: Queue,
        local: SqlStore,
        remote: Remote,
        policy: Policy,
        writer: Writer,
        ships: Allowance | None = None,
    ) -> None:
        self.queue = queue
        self.ships = ships
        self.ref = StreamRef.dead(queue.name)
        self.local = local
        self.policy = policy
        self.shipper = LogShipper(local, remote, self.ref, policy, writer)

    def archive(self, jobs: Sequence[str], facts: Mapping[str, Sequence[Pair]], *, now_ms: int) -> DeadReceipt:
        """Archives these jobs and proves it; with ``trim_after: remote`` they are shipped and read back before this
        returns, or wait for the next segment (`ships`). `facts`: what is known of a job's death, by id, e.g.
        ``(b"seen_at", b"1733000000000")`` (unix ms).

        Raises what the stores and the server raise; then nothing is proven, and calling again is harmless. Memory is
        bounded by bytes, not by `jobs`, but the receipt holds names and a digest of each: some thousands a call.
        """
        receipt = DeadReceipt()
        found: dict[StreamId, ArchivedDead] = {}
        shapes: dict[tuple[bytes, ...], _Shape] = {}
        batch, page = Batch(), _Page(shapes)
        for job, branded, row, logs in self._read(jobs, receipt):
            try:
                stream_id, archived = page.add(job, branded, row, logs, facts.get(job, ()))
            except BadInputError as fault:
                receipt.failed[job] = str(fault)
                continue
            found[stream_id] = archived
            if len(page.ids) >= PAGE_JOBS or page.size >= READ_BYTES:
                batch.take(page.chunk())
                page = _Page(shapes)
                if batch.bytes >= BATCH_BYTES:
                    self._store(batch, found, receipt)
                    batch = Batch()
        batch.take(page.chunk())
        self._store(batch, found, receipt)
        self._prove(found, receipt, now_ms)
        if self.policy.trim_after == "remote":
            prune(self.shipper, now_ms=now_ms, below=LAST_ID)
        return receipt

    def _read(
        self, jobs: Sequence[str], receipt: DeadReceipt
    ) -> Iterator[tuple[str, ids.BrandedId, Sequence[bytes], Sequence[bytes]]]:
        """Each of `jobs` that is dead: the id, the same parsed, row as name, value ..., log lines."""
        keys, at = self.queue.keys, 0
        parsed: dict[str, ids.BrandedId] = {}
        for job in jobs:
            try:
                parsed[job] = ids.parse(job)
                if parsed[job].namespace != "JOB":
                    raise BadInputError("no JOB id")
            except BadInputError:
                parsed.pop(job, None)
                receipt.failed[job] = "no JOB id"
        known = list(parsed)
        while at < len(known):
            deadline.check("reading dead jobs")
            asked = known[at : at + READ_JOBS]
            replies = self.queue.run("dead_read", [keys.dead], keys.base, READ_BYTES, *asked, readonly=True)
            for job, reply in zip(asked, replies, strict=False):
                if reply[0] == 0:
                    receipt.gone.append(job)
                elif reply[0] < 0:
                    receipt.failed[job] = "its row or its logs are of another type"
                else:
                    yield job, parsed[job], reply[1], reply[2]
            at += len(replies)

    def _store(self, batch: Batch, found: dict[StreamId, ArchivedDead], receipt: DeadReceipt) -> None:
        if not batch.records:
            return
        added = self.local.add(self.ref, batch, None, self.policy)
        receipt.folded += added.new
        receipt.known += added.known
        if added.erased:
            gone = self.shipper.catalog.erased()
            for stream_id in [i for i, job in found.items() if gone.get(job.job.encode("ascii"), FIRST_ID) >= i]:
                receipt.failed[found.pop(stream_id).job] = "it was erased, and is not archived again"
        for refused in added.unstorable:
            receipt.failed[found.pop(refused.id).job] = refused.reason

    def _prove(self, found: dict[StreamId, ArchivedDead], receipt: DeadReceipt, now_ms: int) -> None:
        if self.policy.trim_after == "remote" and found:
            shipped = self.shipper.ship(now_ms=now_ms, force=self._may_ship(now_ms))
            receipt.shipped, receipt.segments = shipped.records, shipped.segments
            receipt.lsn, receipt.head = shipped.lsn, shipped.head
            if receipt.known or self.local.outbox(self.ref).records:
                # Some were in the archive before: what this process did not read back is read now.
                proof = self.shipper.prove(next_id(max(found)), start=min(found))
                bound = proof.bound or FIRST_ID
                receipt.waiting = [found.pop(stream_id).job for stream_id in [i for i in found if i >= bound]]
        receipt.proven = {job.job: job for job in found.values()}

    def _may_ship(self, now_ms: int) -> bool:
        """Whether what waits goes now, though the segment is neither full nor old."""
        records = self.local.outbox(self.ref).records
        return bool(records) and (self.ships is None or records >= MANY or self.ships.take(now_ms))


class _Shape(NamedTuple):
    """What rows with the same fields in the same order have in common. `stored`: the names under which ``job`` and the
    fields are archived, `size` their bytes; `attempts`, `stalls`: places of these counts, None where there is none."""

    names: tuple[bytes, ...]
    stored: list[bytes]
    size: int
    attempts: int | None
    stalls: int | None

    @classmethod
    def of(cls, names: tuple[bytes, ...]) -> _Shape:
        stored = dead_fields("", [(name, b"") for name in names], ())[::2]
        attempts, stalls = (names.index(name) if name in names else None for name in (b"attempts", b"stalled"))
        return cls(names, stored, sum(map(len, stored)), attempts, stalls)


class _Page:
    """Dead jobs in the form of `dead_fields`, all fields of all of them in two lists."""

    def __init__(self, shapes: dict[tuple[bytes, ...], _Shape]) -> None:
        self.ids: list[StreamId] = []
        self.size = 0
        self._pairs: list[int] = []
        self._names: list[bytes] = []
        self._values: list[bytes] = []
        self._shapes = shapes

    def add(
        self, job: str, branded: ids.BrandedId, row: Sequence[bytes], logs: Sequence[bytes], facts: Sequence[Pair]
    ) -> tuple[StreamId, ArchivedDead]:
        """Raises BadInputError for a row whose counts are no numbers; then nothing was added."""
        names, values = tuple(row[::2]), row[1::2]
        shape = self._shapes.get(names)
        if shape is None:
            shape = self._shapes[names] = _Shape.of(names)
        attempts = 0 if shape.attempts is None else _count(values[shape.attempts], "attempts")
        stalls = 0 if shape.stalls is None else _count(values[shape.stalls], "stalled")
        stream_id = dead_id(branded, attempts, stalls)
        self.ids.append(stream_id)
        self._pairs.append(1 + len(values) + len(logs) + len(facts))
        self._names += shape.stored
        self._values.append(job.encode("ascii"))
        self._values += values
        self.size += shape.size + len(job) + sum(map(len, values))
        if logs:
            self._extend([(b"log", line) for line in logs])
        if facts:
            self._extend([(b"fact:" + name, value) for name, value in facts])
        return stream_id, ArchivedDead(job, shape.names, dead_digest(values, logs), attempts, stalls)

    def _extend(self, pairs: Sequence[Pair]) -> None:
        for name, value in pairs:
            self._names.append(name)
            self._values.append(value)
            self.size += len(name) + len(value)

    def chunk(self) -> Chunk:
        """All of it."""
        return Chunk.of_columns(self.ids, self._pairs, self._names, self._values)


def _count(text: bytes, name: str) -> int:
    if not text.isdigit() or len(text) > 15:
        raise BadInputError(f"its {name} is no whole number", fix="`emq-ops doctor` explains")
    return int(text)
