"""Shipping: what is in the outbox becomes segments, is read back, committed, and only then called shipped.

Each step may be the last one of this process: an object without a commit is written again under the same name, a
commit that was not noted here is found by comparing what it holds.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from emq_archive import redact
from emq_archive.chunk import Chunk, ordered
from emq_archive.errors import DamagedArchiveError, LostRaceError
from emq_archive.local.catalog import Catalog
from emq_archive.local.outbox import Waiting
from emq_archive.local.store import SqlStore
from emq_archive.log.commit import Change, Segment, commit_key, get_commit
from emq_archive.log.log import RACES, CommitLog
from emq_archive.log.manifest import write_manifest
from emq_archive.log.reconcile import Matches, compare
from emq_archive.log.standing import standing_damage
from emq_archive.model import FIRST_ID, Policy, StreamId, StreamRef, Writer
from emq_archive.ports import Remote
from emq_archive.remote.back import not_kept, read_back
from emq_archive.reports import Outbox, Receipt, Shipped
from emq_archive.segment import open_segment, write_segment
from emq_ops.protocol import deadline

READ_BACK_MOST = 500
"""So many segments that were read back are remembered before it is looked which of them are needed yet."""
NAMES = 3
"""How many names are tried for a segment whose object is there with other bytes."""


class LogShipper:
    """Brings what is in the outbox into the remote, and proves it. One thread. Set ``log.writer`` anew when the
    lease was taken anew."""

    def __init__(self, local: SqlStore, remote: Remote, ref: StreamRef, policy: Policy, writer: Writer) -> None:
        self.local = local
        self.remote = remote
        self.ref = ref
        self.policy = policy
        self.catalog = Catalog(local, ref)
        self.log = CommitLog(self.catalog, remote, writer)
        self._read_back: dict[int, str] = {}
        self._remembers = READ_BACK_MOST

    def due(self, now_ms: int, outbox: Outbox | None = None) -> bool:
        """Whether `ship` without force would ship something; `outbox`: what waits, where that was just asked."""
        outbox = outbox or self.local.outbox(self.ref)
        if not outbox.records or outbox.oldest_ms is None:
            return bool(self.catalog.manifest_due())  # a process was killed before it wrote the lists
        return outbox.bytes >= self.policy.segment_bytes or now_ms - outbox.oldest_ms >= self.policy.ship_after_ms

    def watermark(self) -> str | None:
        """The ``EVT`` id of the newest archived record as this host knows it."""
        return self.catalog.newest_evt()

    def holds_evt(self, evt: str) -> bool:
        """Whether a segment of the log ends with the record of that ``EVT`` id. Raises what the remote raises."""
        self.log.read()
        return self.catalog.ends_with(evt)

    def ship(self, *, now_ms: int, force: bool = False) -> Shipped:
        """Ships full segments, old ones (`ship_after_ms`), or all (`force`). Resumable: killed anywhere, the next call
        ends in the same state. Sends nothing to the remote when nothing is due. Raises DeposedError, ForeignStateError,
        DamagedArchiveError and what the stores raise."""
        done = Shipped()
        outbox = self.local.outbox(self.ref)
        if self.due(now_ms, outbox) or (force and outbox.records):
            self.remote.probe()
            for _ in range(RACES):
                try:
                    self.log.sync()
                    while self._ship_next(done, now_ms, force):
                        pass
                    break
                except LostRaceError:
                    continue  # the loop reads what the other wrote, and goes on from its head
            else:
                raise LostRaceError(f"another writer was quicker {RACES} times", where=self.remote.url)
            write_manifest(self.catalog, self.remote)
            self.log.checkpoint_if_due()
        known = self.catalog.known()
        done.lsn, done.head, done.watermark = known.lsn, known.head, self.watermark()
        return done

    def _ship_next(self, done: Shipped, now_ms: int, force: bool) -> bool:
        """Ships one segment, or finds records in segments that are there; False when nothing is due any more."""
        group = self._next_group(now_ms, force)
        if not group:
            return False
        deadline.check("shipping the next segment")
        low, high = group[0].first, max(waiting.last for waiting in group)
        others = [s for s in self.catalog.segments(low, high) if not self.catalog.held(s)]
        if others and self._found(group, others, done):
            return True
        known = self.catalog.known()
        incarnation = group[0].incarnation
        segment = self._create(write_segment(self.ref, incarnation, self._chunks(group)))
        commit = self.log.commit(
            Change(
                kind="ship",
                at=now_ms,
                add=(segment,),
                opens=incarnation if incarnation > known.opened else None,
                redact=redact.spec_of(self.policy.redact) if self.policy.redact else None,
            )
        )
        self._read_back[commit.lsn] = segment.sha256
        if self.catalog.shipped(group, commit.lsn):
            done.records += segment.records
        done.segments += 1
        done.bytes += segment.bytes
        done.incarnations += commit.opens is not None
        return True

    def _next_group(self, now_ms: int, force: bool) -> list[Waiting]:
        """Rows of one incarnation and one day that become the next segment."""
        waiting = self.catalog.waiting()
        everything = force or any(now_ms - w.added_ms >= self.policy.ship_after_ms for w in waiting)
        groups: dict[tuple[int, int], list[Waiting]] = defaultdict(list)
        weights: dict[tuple[int, int], int] = defaultdict(int)
        for row in waiting:
            key = (row.incarnation, row.day)
            groups[key].append(row)
            weights[key] += row.weight
            if weights[key] >= self.policy.segment_bytes:
                return groups[key]
        return next(iter(groups.values()), []) if everything else []

    def _chunks(self, group: Sequence[Waiting]) -> Iterator[Chunk]:
        apart = all(a.last < b.first for a, b in pairwise(group))
        bodies = self.catalog.bodies(waiting.row for waiting in group)
        there = (self._still_there(chunk) for chunk in bodies)
        if apart:
            yield from there
        else:
            yield ordered(list(there))

    @staticmethod
    def _still_there(chunk: Chunk | None) -> Chunk:
        if chunk is None:
            raise LostRaceError("another process shipped these records meanwhile")
        return chunk

    def _create(self, written: tuple[Segment, bytes]) -> Segment:
        """Writes a segment's object and reads it back."""
        return store_segment(self.remote, *written)

    def _found(self, group: Sequence[Waiting], others: Sequence[Segment], done: Shipped) -> bool:
        """Looks records up in segments that this host does not hold; whether rows changed by that."""
        chunks = dict(zip(group, map(self._still_there, self.catalog.bodies(w.row for w in group)), strict=True))
        ever = self.catalog.redactions()
        matches = {waiting: Matches() for waiting in group}
        for segment in others:
            body = self.read_segment(segment)
            compare(open_segment(body, segment.key), segment, chunks, matches, ever, self.ref.kind)
        changed = False
        for waiting, match in matches.items():
            pieces = match.pieces(chunks[waiting], waiting.incarnation)
            if pieces is not None and self.catalog.split(waiting, pieces):
                changed = True
                done.records += len(match.found)
                done.found += len(match.found)
        return changed

    def match_outbox(self, done: Shipped) -> None:
        """Looks the whole outbox up in the segments that this host does not hold (as far as the log was read)."""
        groups: dict[tuple[int, int], list[Waiting]] = defaultdict(list)
        for row in self.catalog.waiting():
            groups[row.incarnation, row.day].append(row)
        for group in groups.values():
            low, high = group[0].first, max(waiting.last for waiting in group)
            others = [s for s in self.catalog.segments(low, high) if not self.catalog.held(s)]
            if others:
                self._found(group, others, done)

    def read_segment(self, segment: Segment) -> bytes:
        """A segment's bytes, proven by their hash. Raises DamagedArchiveError naming it."""
        body = self.remote.get(segment.key, most=segment.bytes)
        if body is None:
            raise DamagedArchiveError(
                f"segment {segment.key} of commit {segment.lsn} is missing",
                faults=(segment.key,),
                where=self.remote.url,
            )
        if hashlib.sha256(body).hexdigest() != segment.sha256:
            raise DamagedArchiveError(
                f"segment {segment.key} is not what commit {segment.lsn} says ({len(body)} bytes of {segment.bytes})",
                faults=(segment.key,),
                where=self.remote.url,
            )
        self._read_back[segment.lsn] = segment.sha256
        return body

    # --- the receipt

    def prove(self, below: StreamId | None, *, start: StreamId = FIRST_ID) -> Receipt:
        """The receipt for a trim: up to which id (at most `below`, exclusive) every record that was added is proven.

        `start`: the first id in the stream; segments of [start, bound) that this process did not read back are read
        now. With `trim_after: local` no request is made. The caller bounds `below` by what it knows to be unstorable.
        Raises DamagedArchiveError where the archive is not what its log says."""
        if self.policy.trim_after == "local":
            return Receipt(self.ref, below, trim_after="local")
        damage = standing_damage(self.catalog, self.remote)
        if damage is not None:
            raise DamagedArchiveError(
                f"the archive of {self.ref} is damaged, so nothing is trimmed: {damage}",
                where=self.remote.url,
                fix="mend it, then run `emq-ops archive verify`",
            )
        known = self.catalog.known()
        waits = self.local.outbox(self.ref).first
        bound = below if waits is None or below is None else min(below, waits)
        if bound is not None and bound > start:
            try:
                self._prove_segments(start, bound)
            except DamagedArchiveError:
                # A segment that was merged with others on another host is gone by right: the log says so.
                before = known.lsn
                known = self.log.sync()
                if known.lsn == before:
                    raise
                self._prove_segments(start, bound)
        return Receipt(self.ref, bound, known.lsn, known.head)

    def _prove_segments(self, start: StreamId, bound: StreamId) -> None:
        self._forget_trimmed(start, bound)
        if all(map(self._was_read, self.catalog.segments(start, _before(bound)))):
            return  # as in nearly every cycle: no request is made
        self.log.sync()
        for segment in self.catalog.segments(start, _before(bound)):
            if self._was_read(segment):
                continue
            deadline.check("proving what may be trimmed")
            key = commit_key(self.ref, segment.lsn)
            _, commit = get_commit(self.remote, key)
            if segment not in commit.add:
                raise DamagedArchiveError(f"commit {key} does not name {segment.key}", faults=(key,))
            self.read_segment(segment)

    def _forget_trimmed(self, start: StreamId, bound: StreamId) -> None:
        """What was trimmed needs no proof any more; what was shipped since is yet to need one."""
        if len(self._read_back) <= self._remembers:
            return
        kept = {segment.lsn for segment in self.catalog.segments(start, _before(bound))}
        first = min(kept, default=0)
        self._read_back = {lsn: sha for lsn, sha in self._read_back.items() if lsn in kept or lsn > first}
        self._remembers = max(READ_BACK_MOST, 2 * len(self._read_back))

    def _was_read(self, segment: Segment) -> bool:
        """Whether this process read it back, or wrote it and read it back."""
        return self._read_back.get(segment.lsn) == segment.sha256


def _before(stream_id: StreamId) -> StreamId:
    ms, seq = stream_id
    return (ms, seq - 1) if seq else (ms - 1, (1 << 64) - 1)


def store_segment(remote: Remote, segment: Segment, body: bytes) -> Segment:
    """Writes a segment's object, reads it back, and answers it under the name that it got. Raises StoreRefusedError
    where what comes back is not what was written."""
    stem = segment.key.removesuffix(".parquet")
    for number in range(NAMES):
        named = replace(segment, key=f"{stem}-{number}.parquet") if number else segment
        remote.create(named.key, body)
        back = read_back(remote, named.key)
        if back is not None and hashlib.sha256(back).hexdigest() == segment.sha256:
            return named
    raise not_kept(remote, segment.key)
