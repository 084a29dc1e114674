"""Dead jobs into the archive, before the trim of the dead set deletes them: row, logs and what is known of each death.

The trim compares: a job may go only if it is still dead and, byte for byte, what was archived. So each archived job
comes back with the names of its row's fields and a digest that ``lua/lib/dead.lua`` makes the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from emq_archive.chunk import Batch
from emq_archive.dead_digest import dead_digest
from emq_archive.deadline import NEVER, Deadline
from emq_archive.model import FIRST_ID, Pair, Policy, RawEntry, StreamId, StreamRef, dead_fields, dead_id, next_id
from emq_archive.ports import Fence, LocalStore, Remote, Shipper
from emq_archive.ship import open_shipper
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue

READ_BYTES = 4 * 1024 * 1024
READ_JOBS = 500
PAGE_JOBS = 1000
BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A dead job that was archived. `names`: its row's fields in the order of `digest`, which covers their values and
    the log lines (``dead_digest`` in Lua); `attempts` and `stalls` are of its row."""

    job: str
    names: tuple[bytes, ...]
    digest: str
    attempts: int
    stalls: int


@dataclass(slots=True)
class DeadReceipt:
    """`proven`: the jobs that may be trimmed, by id. `failed`: those that may not, and why. `gone`: no longer dead.
    Counts: `folded` new records, `known` archived before, `shipped` and `segments` of this call; `lsn`, `head` of the
    log that it rests on (0 and None with ``trim_after: local``)."""

    proven: dict[str, DeadJob] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    folded: int = 0
    known: int = 0
    shipped: int = 0
    segments: int = 0
    lsn: int = 0
    head: str | None = None


class DeadArchive:
    """Archives dead jobs of one queue as stream ``dead``. One thread."""

    def __init__(self, queue: Queue, local: LocalStore, remote: Remote, policy: Policy, writer: Fence) -> None:
        self.queue = queue
        self.ref = StreamRef.dead(queue.name)
        self.local = local
        self.policy = policy
        self.shipper: Shipper = open_shipper(local, remote, self.ref, policy, writer)

    def archive(
        self, jobs: Sequence[str], facts: Mapping[str, Sequence[Pair]], *, now_ms: int, deadline: Deadline = NEVER
    ) -> DeadReceipt:
        """Archives these jobs and proves it; with ``trim_after: remote`` they are shipped and read back before this
        returns. `facts`: what is known of a job's death, e.g. ``(b"seen_at", b"1733000000000")`` (unix ms), by id.

        Raises what the stores and the server raise; then nothing is proven, and calling again is harmless. Memory is
        bounded by bytes, not by `jobs`, but the receipt holds names and a digest of each: some thousands a call.
        """
        receipt = DeadReceipt()
        found: dict[StreamId, DeadJob] = {}
        batch = Batch()
        page: list[RawEntry] = []
        size = 0
        for stream_id, job, entry in self._read(jobs, facts, receipt, deadline):
            found[stream_id] = job
            page.append(entry)
            size += sum(map(len, entry[1]))
            if len(page) >= PAGE_JOBS or size >= READ_BYTES:
                batch.append(page)
                page, size = [], 0
                if batch.bytes >= BATCH_BYTES:
                    self._store(batch, found, receipt, deadline)
                    batch = Batch()
        batch.append(page)
        self._store(batch, found, receipt, deadline)
        self._prove(found, receipt, now_ms, deadline)
        return receipt

    def _read(
        self, jobs: Sequence[str], facts: Mapping[str, Sequence[Pair]], receipt: DeadReceipt, deadline: Deadline
    ) -> Iterator[tuple[StreamId, DeadJob, RawEntry]]:
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
                    try:
                        yield _archived_form(job, parsed[job], reply[1], reply[2], facts.get(job, ()))
                    except BadInputError as fault:
                        receipt.failed[job] = str(fault)
            at += len(replies)

    def _store(self, batch: Batch, found: dict[StreamId, DeadJob], receipt: DeadReceipt, deadline: Deadline) -> None:
        if not batch.records:
            return
        added = self.local.add(self.ref, batch, None, self.policy, deadline=deadline)
        receipt.folded += added.new
        receipt.known += added.known
        for refused in added.unstorable:
            receipt.failed[found.pop(refused.id).job] = refused.reason

    def _prove(self, found: dict[StreamId, DeadJob], receipt: DeadReceipt, now_ms: int, deadline: Deadline) -> None:
        if self.policy.trim_after == "remote" and found:
            shipped = self.shipper.ship(now_ms=now_ms, force=True, deadline=deadline)
            receipt.shipped, receipt.segments = shipped.records, shipped.segments
            receipt.lsn, receipt.head = shipped.lsn, shipped.head
            if receipt.known or self.local.outbox(self.ref).records:
                # Some were in the archive before: what this process did not read back is read now.
                proof = self.shipper.prove(next_id(max(found)), start=min(found), deadline=deadline)
                bound = proof.bound or FIRST_ID
                for stream_id in [i for i in found if i >= bound]:
                    receipt.failed[found.pop(stream_id).job] = "not proven to be in the archive yet"
        receipt.proven = {job.job: job for job in found.values()}


def _archived_form(
    job: str, branded: ids.BrandedId, row: Sequence[bytes], logs: Sequence[bytes], facts: Sequence[Pair]
) -> tuple[StreamId, DeadJob, RawEntry]:
    """Raises BadInputError for a row whose counts are no numbers."""
    names, values = row[::2], row[1::2]
    pairs = list(zip(names, values, strict=True))
    counts = dict(pairs)
    attempts, stalls = _count(counts, b"attempts"), _count(counts, b"stalled")
    stream_id = dead_id(branded, attempts, stalls)
    flat = dead_fields(job, pairs, logs, facts)
    digest = dead_digest(values, logs)
    return stream_id, DeadJob(job, tuple(names), digest, attempts, stalls), [b"%d-%d" % stream_id, flat]


def _count(values: Mapping[bytes, bytes], name: bytes) -> int:
    text = values.get(name, b"0")
    if not text.isdigit() or len(text) > 15:
        raise BadInputError(f"its {name.decode()} is no whole number", fix="`emq-ops doctor` explains")
    return int(text)
