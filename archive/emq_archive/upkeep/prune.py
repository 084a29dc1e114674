"""`local_keep`: shipped rows leave the local database, once the remote is proven to hold them."""

from __future__ import annotations

from emq_archive.errors import DamagedArchiveError
from emq_archive.log.commit import Segment
from emq_archive.log.standing import standing_damage
from emq_archive.model import StreamId
from emq_archive.write.ship import LogShipper

RESHIP = "`emq-ops archive reship` ships them again from the local database, where it holds them"


def prune(shipper: LogShipper, *, now_ms: int, below: StreamId | None) -> int:
    """Deletes shipped rows older than `local_keep_ms` with an id below `below` (what is still in the stream is kept: it
    will be read again); returns how many records. Dead jobs are as old as their archiving.

    Nothing goes before it is proven, in a few requests, that the head of the log stands as it was read and that every
    segment in question is there in its full size: a local row may be the last copy. Sends nothing where nothing is old.
    Raises DamagedArchiveError, and remembers it, where something is missing; and what the stores raise.
    """
    catalog, keep_ms = shipper.catalog, shipper.policy.local_keep_ms
    if keep_ms is None or below is None or not catalog.old(now_ms - keep_ms, below):
        return 0
    shipper.log.sync()
    if (damage := standing_damage(catalog, shipper.remote)) is not None:
        raise DamagedArchiveError(f"nothing is pruned, since the archive is damaged: {damage}", fix=RESHIP)
    lsns = catalog.old(now_ms - keep_ms, below)  # a merge that was just read may have moved them
    segments = [segment for segment in catalog.segments() if segment.lsn in lsns]
    lost = missing(shipper, segments)
    if lost:
        what = f"{len(lost)} segments are not in the remote as the log says, the first is {lost[0].key}"
        catalog.damaged([what], in_log=False)
        faults = tuple(segment.key for segment in lost)
        raise DamagedArchiveError(
            f"nothing is pruned or trimmed: {what}", faults=faults, where=shipper.remote.url, fix=RESHIP
        )
    return catalog.prune(now_ms - keep_ms, below, {segment.lsn for segment in segments})


def missing(shipper: LogShipper, segments: list[Segment]) -> list[Segment]:
    """Those of `segments` whose objects are not there, or not of their size."""
    there = shipper.remote.sizes([segment.key for segment in segments])
    return [segment for segment in segments if there.get(segment.key) != segment.bytes]
