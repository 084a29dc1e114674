"""`erase`: a job's records out of every segment, by rewriting; logged, so that they never come back."""

from __future__ import annotations

from dataclasses import dataclass, field

from emq_archive.chunk import Chunk, ordered
from emq_archive.errors import DamagedArchiveError, LostRaceError
from emq_archive.local.settle import places_left
from emq_archive.log.commit import Change, Segment, folder
from emq_archive.log.log import RACES
from emq_archive.log.manifest import write_manifest
from emq_archive.log.walk import every_key
from emq_archive.model import LAST_ID, StreamId
from emq_archive.read.bloom import groups_with_job
from emq_archive.remote.file import RemoteFile
from emq_archive.reports import Row
from emq_archive.segment import open_segment, row_groups, write_segment
from emq_archive.upkeep.compact import replace_segments
from emq_archive.upkeep.verify import Progress
from emq_archive.write.ship import LogShipper
from emq_ops.protocol import deadline


@dataclass(slots=True)
class Erased(Row):
    """`records` of the job were in `segments` segments, which were rewritten (or, with `dry_run`, would be); `deleted`
    objects that held it and are not in the archive are gone. `upto`: records of the job up to this id never come into
    the archive again. `notes`: what could not be done."""

    queue: str
    stream: str
    job: str
    records: int = 0
    segments: int = 0
    deleted: int = 0
    upto: str = ""
    lsn: int = 0
    dry_run: bool = False
    notes: list[str] = field(default_factory=list)


def erase_job(
    shipper: LogShipper,
    job: str,
    upto: StreamId = LAST_ID,
    *,
    now_ms: int,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Erased:
    """Takes the records of `job` with an id of at most `upto` out of the archive: out of the local database, out of
    every segment (rewritten, a commit each), and deletes every object with such a record that is out of the archive, at
    once and without a grace. Entries in the stream itself stay, and are not archived again.

    Killed anywhere, it can be run again; others may fold and merge meanwhile.
    """
    done = Erased(shipper.ref.queue, shipper.ref.stream, job, upto=f"{upto[0]}-{upto[1]}", dry_run=dry_run)
    shipper.log.sync()
    if not dry_run:
        # First the word, so that no reader or driver takes a record of it any more.
        shipper.log.append(Change(kind="erase", at=now_ms, erased=(job, upto)))
    for _ in range(RACES):
        if _rewrite(shipper, done, upto, now_ms, progress):
            break
    else:
        raise LostRaceError(f"another writer was quicker {RACES} times", where=shipper.remote.url)
    if not dry_run:
        write_manifest(shipper.catalog, shipper.remote)
        _delete(shipper, done, upto)
        done.notes += shipper.local.scrub()
    done.lsn = shipper.catalog.known().lsn
    return done


def _rewrite(shipper: LogShipper, done: Erased, upto: StreamId, now_ms: int, progress: Progress | None) -> bool:
    """Every segment that holds the job, without it. False where another writer put others in their place meanwhile,
    which may hold it too."""
    whole, gone = True, {done.job.encode("utf-8"): upto}
    segments = list(shipper.catalog.segments(job=done.job))
    for number, segment in enumerate(segments, 1):
        if progress is not None:
            progress(number, len(segments))
        deadline.check(f"rewriting {segment.key}")
        if not _may_hold(shipper, segment, done.job):
            continue
        body = shipper.read_segment(segment)
        kept: list[Chunk] = []
        held = 0
        for chunk in row_groups(open_segment(body, segment.key), segment.key):
            left = places_left(chunk, gone)
            held += len(chunk) - len(left)
            kept.append(chunk.take(left))
        if not held:
            continue
        if not done.dry_run:
            rest = ordered(kept)
            new = write_segment(shipper.ref, segment.incarnation, [rest]) if len(rest) else None
            if not replace_segments(shipper, "erase", [segment], new, now_ms):
                whole = False
                continue
        done.records += held
        done.segments += 1
    return whole


def _delete(shipper: LogShipper, done: Erased, upto: StreamId) -> None:
    """Objects with a record of the job that no commit names. What holds none stays: another writer may be about to
    commit it. One that holds some can't be committed any more, since its writer reads the word first."""
    there = {*every_key(shipper.remote, folder(shipper.ref)), *shipper.catalog.removed()}
    shipper.log.sync()  # what was committed since it was last read is live
    live = {segment.key for segment in shipper.catalog.segments()}
    old = [key for key in there - live if _holds(shipper, key, done.job, upto)]
    shipper.remote.delete(old)
    shipper.catalog.deleted(old)
    done.deleted = len(old)


def _holds(shipper: LogShipper, key: str, job: str, upto: StreamId) -> bool:
    """Whether an object has such a record, or can't be read: nobody commits what he did not read back."""
    size = shipper.remote.size(key)
    if size is None:
        return False
    try:
        source = RemoteFile(shipper.remote, key, size)
        file = open_segment(source, key)
        groups = groups_with_job(source, file.metadata, job)
        gone = {job.encode("utf-8"): upto}
        return any(len(places_left(chunk, gone)) < len(chunk) for chunk in row_groups(file, key, groups))
    except DamagedArchiveError:
        return True


def _may_hold(shipper: LogShipper, segment: Segment, job: str) -> bool:
    source = RemoteFile(shipper.remote, segment.key, segment.bytes)
    file = open_segment(source, segment.key)
    # A job that is no text stands in no column, so the filters do not know it.
    return segment.job_min is None or bool(groups_with_job(source, file.metadata, job))
