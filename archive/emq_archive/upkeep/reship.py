"""`reship` and `accept_loss`: what to do about objects that the remote lost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from emq_archive.chunk import ordered
from emq_archive.errors import ArchiveError, DamagedArchiveError, ForeignStateError
from emq_archive.log.commit import Change, Segment
from emq_archive.log.manifest import write_manifest
from emq_archive.log.walk import checkpoints_of, walk
from emq_archive.reports import Row
from emq_archive.segment import write_segment
from emq_archive.upkeep.compact import replace_segments
from emq_archive.upkeep.prune import missing
from emq_archive.upkeep.verify import Progress
from emq_archive.write.ship import LogShipper, store_segment
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError


@dataclass(slots=True)
class Reshipped(Row):
    """`segments` with `records` records were written again from local rows, and `commits` of the log are gone (given up
    for lost, with what they said said anew); `left`: segments that are lost and not whole in the local database."""

    queue: str
    stream: str
    segments: int = 0
    records: int = 0
    commits: int = 0
    left: list[str] = field(default_factory=list)
    lsn: int = 0
    dry_run: bool = False


def reship(
    shipper: LogShipper, *, now_ms: int, deep: bool = False, dry_run: bool = False, progress: Progress | None = None
) -> Reshipped:
    """Ships from intact local rows what the remote lost: segments, and commits of the log too. The log says so: an
    entry of kind ``reship`` names the commits that are gone, and others bring back what those had added; a checkpoint
    behind them is where readers begin. Killed anywhere, it can be run again; what is whole is left alone (`deep`:
    which is found out by reading every segment, else by their sizes).

    Raises ArchiveError where this host knows of no archive, DamagedArchiveError where other commits stand in the log
    than this host saw, ForeignStateError, and what the stores raise."""
    catalog, log, remote, ref = shipper.catalog, shipper.log, shipper.remote, shipper.ref
    known = catalog.known()
    if known.lsn == 0:
        raise ArchiveError(f"the local database knows of no archive of {ref}", fix="nothing was shipped from here")
    if known.state not in (shipper.log.writer.state, *shipper.log.writer.former):
        raise ForeignStateError(
            f"the archive of {ref} belongs to state {known.state}",
            where=remote.url,
            fix=f"ship from where that one is; if it is gone for good: emq-ops state take-over {known.state}",
        )
    found = walk(remote, ref, known, checkpoints_of(remote, ref))
    if found.rewritten or (found.last > known.lsn and known.lsn in found.missing):
        fix = "run `emq-ops archive verify`; nothing was shipped"
        raise DamagedArchiveError("the log is not the one that this host wrote", where=remote.url, fix=fix)
    if known.lsn not in found.missing:
        known = log.sync()
    done = Reshipped(ref.queue, ref.stream, commits=len(found.missing), dry_run=dry_run)
    segments = list(catalog.segments())
    keys = {segment.key for segment in segments}
    lost = {segment.key for segment in (_damaged if deep else missing)(shipper, segments)}
    stale = tuple((segment.lsn, key) for key, segment in found.live.items() if key not in keys)
    if (found.missing or stale) and not dry_run:
        opens = known.opened or None
        log.commit(Change(kind="reship", at=now_ms, lost=_ranges(sorted(found.missing)), remove=stale, opens=opens))
    again = [segment for segment in segments if segment.key in lost or segment.lsn in found.missing]
    for number, segment in enumerate(again, 1):
        if progress is not None:
            progress(number, len(again))
        deadline.check(f"shipping {segment.key} again")
        new: Segment | None = segment
        if segment.key in lost:
            if catalog.held(segment):
                done.segments, done.records = done.segments + 1, done.records + segment.records
                new = None if dry_run else _written(shipper, segment)
            else:
                done.left.append(segment.key)
                if segment.lsn not in found.missing:
                    continue  # the log names it still
        if new is not None and not dry_run:
            # Also of one that is lost for good: the log names it until the loss is accepted.
            log.commit(Change(kind="reship", at=now_ms, add=(new,), remove=((segment.lsn, segment.key),)))
    if not dry_run and (again or found.missing or stale):
        log.checkpoint()
        write_manifest(catalog, remote)
    done.lsn = catalog.known().lsn
    return done


def _damaged(shipper: LogShipper, segments: Sequence[Segment]) -> list[Segment]:
    """Those of `segments` whose objects are not byte for byte what the log says; reads all of them."""
    out = []
    for segment in segments:
        deadline.check(f"reading {segment.key}")
        try:
            shipper.read_segment(segment)
        except DamagedArchiveError:
            out.append(segment)
    return out


def _written(shipper: LogShipper, segment: Segment) -> Segment:
    """A segment made anew of its local rows, and read back."""
    rows = ordered(shipper.catalog.proven_by(segment.lsn))
    return store_segment(shipper.remote, *write_segment(shipper.ref, segment.incarnation, [rows]))


def _ranges(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    if not numbers:
        return ()
    ends = [numbers[0], *(n for a, b in pairwise(numbers) if b != a + 1 for n in (a, b)), numbers[-1]]
    return tuple(zip(ends[::2], ends[1::2], strict=True))


def accept_loss(shipper: LogShipper, key: str, *, now_ms: int) -> Segment:
    """Writes into the log that a segment is lost for good, so that all else goes on without it. Returns the segment.
    Raises BadInputError where it is whole, can be shipped again, or is not in the archive."""
    shipper.log.sync()
    segment = next((one for one in shipper.catalog.segments() if one.key == key), None)
    if segment is None:
        raise BadInputError(
            f"no segment '{key[:200]}' is in the archive of {shipper.ref}", fix="`archive verify` names it"
        )
    body = shipper.remote.get(key) if shipper.remote.size(key) == segment.bytes else None
    if body is not None and hashlib.sha256(body).hexdigest() == segment.sha256:
        raise BadInputError(f"segment {key} is there and whole", fix="nothing is lost")
    if shipper.catalog.held(segment):
        raise BadInputError(f"the local database holds every record of {key}", fix="run `emq-ops archive reship`")
    replace_segments(shipper, "loss", [segment], None, now_ms)
    write_manifest(shipper.catalog, shipper.remote)
    return segment
