"""`compact`, `expire` and the clean-up: a new commit first, and the old objects only after a grace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from emq_archive import redact
from emq_archive.chunk import Chunk, ordered
from emq_archive.errors import DamagedArchiveError, LostRaceError
from emq_archive.log.commit import Change, LetGo, Segment, folder
from emq_archive.log.log import RACES
from emq_archive.log.manifest import write_manifest
from emq_archive.log.walk import every_key
from emq_archive.model import FIRST_ID, StreamId
from emq_archive.reports import Row
from emq_archive.segment import open_segment, row_groups, write_segment
from emq_archive.upkeep.verify import Progress
from emq_archive.write.ship import LogShipper, store_segment
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError

STRAY_MS = 3_600_000
"""So much longer than the grace an object stays that no commit names: its writer may be about to commit it."""


@dataclass(slots=True)
class Compacted(Row):
    """`merged` segments became `segments`; `expired` segments with `records` records were let go; `deleted` objects
    were past their grace, `waiting` are not; `dry_run`: nothing was changed; `read` bytes; `more`: there is more to
    merge."""

    queue: str
    stream: str
    merged: int = 0
    segments: int = 0
    expired: int = 0
    records: int = 0
    deleted: int = 0
    waiting: int = 0
    lsn: int = 0
    dry_run: bool = False
    read: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Of one call: only segments smaller than `below` are merged, and about `most` bytes are read."""

    below: int
    most: int


def compact(
    shipper: LogShipper,
    *,
    now_ms: int,
    grace_ms: int | None = None,
    dry_run: bool = False,
    limits: MergeLimits | None = None,
    progress: Progress | None = None,
) -> Compacted:
    """Merges the small segments of each day into segments of at most ``policy.segment_bytes``, then deletes objects
    that have been out of the archive for longer than the grace. Killed anywhere, it can be run again.

    With `limits` nothing is asked of the store where this host knows of nothing to do, and what is left over at their
    end is for the next call (``more``)."""
    done = Compacted(shipper.ref.queue, shipper.ref.stream, dry_run=dry_run)
    if limits is not None and not (_small(shipper, limits) or shipper.catalog.removed()):
        return done
    shipper.log.sync()
    groups = _small(shipper, limits)
    for number, group in enumerate(groups, 1):
        if progress is not None:
            progress(number, len(groups))
        size = sum(segment.bytes for segment in group)
        if limits is not None and done.read and done.read + size > limits.most:
            done.more = True
            break
        done.read += size
        done.merged += len(group)
        done.segments += 1
        if not dry_run:
            deadline.check("merging the next segments")
            replace_segments(shipper, "compact", group, _merged(shipper, group), now_ms)
    _clean(shipper, done, now_ms, shipper.policy.compact_grace_ms if grace_ms is None else grace_ms)
    return done


def expire(
    shipper: LogShipper,
    *,
    now_ms: int,
    older_than_ms: int | None = None,
    grace_ms: int | None = None,
    head: StreamId | None = FIRST_ID,
    dry_run: bool = False,
) -> Compacted:
    """Lets go of the segments whose newest record is older than `older_than_ms` (or the policy's ``expire_after_ms``).

    `head`: the id that stands first in the stream now (None: it is empty; the lowest of all: nobody knows). Records
    from there on are noted in the log, so that no process archives them again when it reads them; a trim may take them.
    Raises BadInputError where neither says how old: nothing expires by itself."""
    age = shipper.policy.expire_after_ms if older_than_ms is None else older_than_ms
    if age is None:
        raise BadInputError(
            f"no policy says that records of {shipper.ref} expire", fix="give --older-than, or set expire_after"
        )
    done = Compacted(shipper.ref.queue, shipper.ref.stream, dry_run=dry_run)
    shipper.log.sync()
    old = [segment for segment in shipper.catalog.segments() if segment.time_max < now_ms - age]
    done.expired, done.records = len(old), sum(segment.records for segment in old)
    if old and not dry_run:
        for at in range(0, len(old), 500):
            some = old[at : at + 500]
            gone = _let_go(shipper, some, head)
            replace_segments(shipper, "expire", some, None, now_ms, let_go=gone)
    if not dry_run and shipper.catalog.known().lsn:
        shipper.catalog.passed(head)
    _clean(shipper, done, now_ms, shipper.policy.compact_grace_ms if grace_ms is None else grace_ms)
    return done


def replace_segments(
    shipper: LogShipper,
    kind: str,
    old: Sequence[Segment],
    new: tuple[Segment, bytes] | None,
    now_ms: int,
    *,
    let_go: LetGo | None = None,
) -> bool:
    """Commits `new` in place of `old`. False where another writer changed some of `old` meanwhile."""
    stored = store_segment(shipper.remote, *new) if new is not None else None
    for _ in range(RACES):
        live = {segment.lsn for segment in shipper.catalog.segments()}
        if not live.issuperset(segment.lsn for segment in old):
            return False
        try:
            added = (stored,) if stored else ()
            gone = tuple((segment.lsn, segment.key) for segment in old)
            shipper.log.commit(Change(kind=kind, at=now_ms, add=added, remove=gone, let_go=let_go))
        except LostRaceError:
            shipper.log.sync()
            continue
        return True
    raise LostRaceError(f"another writer was quicker {RACES} times", where=shipper.remote.url)


def _let_go(shipper: LogShipper, old: Sequence[Segment], head: StreamId | None) -> LetGo | None:
    """What the records of these segments that may still stand in the stream are known by."""
    if head is None or shipper.ref.kind != "stream":
        return None  # a dead job that is about to be deleted is archived once more
    ever = shipper.catalog.redactions()
    found: set[bytes] = set()
    ends: list[StreamId] = []
    for segment in old:
        if segment.last < head:
            continue
        deadline.check(f"reading {segment.key}")
        try:
            body = shipper.read_segment(segment)
            for chunk in row_groups(open_segment(body, segment.key), segment.key):
                for i, stream_id in enumerate(chunk.ids()):
                    if stream_id >= head:
                        found |= redact.identities(stream_id, chunk.fields(i), ever, stored=True)
        except DamagedArchiveError:
            continue  # what it held is nowhere else: if it still is in the stream, it is archived anew
        ends += (max(head, segment.first), segment.last)
    return LetGo(min(ends), max(ends), b"".join(sorted(found))) if found else None


def _small(shipper: LogShipper, limits: MergeLimits | None) -> list[list[Segment]]:
    """What is to be merged, each into one."""
    below = limits.below if limits is not None else None
    live = [segment for segment in shipper.catalog.segments() if below is None or segment.bytes < below]
    return list(_groups(live, shipper.policy.segment_bytes))


def _groups(segments: Sequence[Segment], most: int) -> Iterator[list[Segment]]:
    by_day: dict[tuple[int, int], list[Segment]] = defaultdict(list)
    for segment in segments:
        by_day[segment.day, segment.incarnation].append(segment)
    for _, found in sorted(by_day.items()):
        group: list[Segment] = []
        weight = 0
        for segment in found:
            if group and weight + segment.weight > most:
                if len(group) > 1:
                    yield group
                group, weight = [], 0
            group.append(segment)
            weight += segment.weight
        if len(group) > 1:
            yield group


def _merged(shipper: LogShipper, group: Sequence[Segment]) -> tuple[Segment, bytes]:
    def chunks() -> Iterator[Chunk]:
        for segment in group:
            body = shipper.read_segment(segment)
            yield from row_groups(open_segment(body, segment.key), segment.key)

    apart = all(a.last < b.first for a, b in pairwise(group))
    found = chunks() if apart else iter([ordered(list(chunks()))])
    return write_segment(shipper.ref, group[0].incarnation, found)


def _clean(shipper: LogShipper, done: Compacted, now_ms: int, grace_ms: int) -> None:
    """Objects that no commit names wait out the grace from the day that they were first seen so, and some more."""
    there = list(every_key(shipper.remote, folder(shipper.ref)))
    if there:
        shipper.log.sync()  # what was committed since it was last read is live
    live = {segment.key for segment in shipper.catalog.segments()}
    removed = shipper.catalog.removed()
    strays = [key for key in there if key not in live and key not in removed]
    past = [key for key, since in removed.items() if key not in live and now_ms - since >= grace_ms]
    done.waiting = len(removed) - len(past) + len(strays)
    done.deleted = len(past)
    if not done.dry_run:
        shipper.catalog.note_removed(strays, now_ms + STRAY_MS)
        write_manifest(shipper.catalog, shipper.remote)
        shipper.remote.delete(past)
        shipper.catalog.deleted(past)
        shipper.log.checkpoint_if_due()
    done.lsn = shipper.catalog.known().lsn
