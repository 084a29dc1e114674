"""`restore`: the local database made anew from the remote alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from emq_archive.errors import ArchiveError, DamagedArchiveError
from emq_archive.local.settle import places_left
from emq_archive.local.store import SqlStore
from emq_archive.log.walk import told_missing, walk
from emq_archive.model import Policy, StreamRef, Writer
from emq_archive.ports import Remote
from emq_archive.read.archive import hole
from emq_archive.reports import Row, Shipped
from emq_archive.segment import open_segment, row_groups
from emq_archive.upkeep.end import Noted, lost_behind, objects_beside
from emq_archive.upkeep.verify import Progress
from emq_archive.write.ship import LogShipper
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import one_line


@dataclass(slots=True)
class Restored(Row):
    """How many segments and records came from the remote, how many were here before; `holes`: segments that can't be
    read, commits that the log lacks, and what speaks for more behind its last (`lsn`, of hash `head`), a line each;
    `state`: whose archive it is."""

    queue: str
    stream: str
    segments: int = 0
    records: int = 0
    here: int = 0
    lsn: int = 0
    holes: list[str] = field(default_factory=list)
    state: str | None = None
    head: str | None = None


def restore(
    local: SqlStore,
    remote: Remote,
    ref: StreamRef,
    *,
    now_ms: int,
    dry_run: bool = False,
    noted: Noted | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Brings every archived record that the local database lacks into it (`dry_run`: only counts them). Ended early, it
    goes on where it stood. `noted`: what is known from elsewhere of how far the log went.

    Segments that can't be read are named, and the rest comes. Raises DamagedArchiveError for a log that is no chain,
    ArchiveError where there is no such archive, and what
    the stores raise.
    """
    objects = objects_beside(remote, ref)
    shipper = LogShipper(local, remote, ref, Policy(), Writer(""))
    known = shipper.log.read()
    if known.lsn == 0:
        raise ArchiveError(f"the remote holds no archive of {ref}", where=remote.url, fix="check queue, stream, prefix")
    done = Restored(ref.queue, ref.stream, lsn=known.lsn, state=known.state)
    # Records that wait here and are in the remote already must not be there twice.
    if not dry_run:
        shipper.match_outbox(Shipped())
    walked = walk(remote, ref, known, set())
    done.head = walked.hashes.get(walked.last)
    told = [*told_missing(walked), *walked.faults, *lost_behind(remote, walked, objects, noted or Noted())]
    done.holes += map(one_line, told)
    segments, erased = list(shipper.catalog.segments()), shipper.catalog.erased()
    for number, segment in enumerate(segments, 1):
        if progress is not None:
            progress(number, len(segments))
        if shipper.catalog.held(segment):
            done.here += segment.records
            continue
        if not dry_run:
            deadline.check(f"restoring {segment.key}")
            try:
                body = shipper.read_segment(segment)
                shipper.catalog.forget(segment)
                for chunk in row_groups(open_segment(body, segment.key), segment.key):
                    # Where an erasure broke off, the segment is not rewritten yet.
                    left = chunk.take(places_left(chunk, erased)) if erased else chunk
                    if len(left):
                        shipper.catalog.restored(segment, left, now_ms)
            except DamagedArchiveError as fault:
                done.holes.append(hole(segment, fault))
                continue
        done.segments += 1
        done.records += segment.records
    return done
