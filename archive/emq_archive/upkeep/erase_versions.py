"""Older versions of segments that an erasure deleted: a bucket with versioning keeps them, and they hold the job."""

from __future__ import annotations

from dataclasses import dataclass, field

from emq_archive.errors import DamagedArchiveError, StoreRefusedError
from emq_archive.local.settle import places_left
from emq_archive.log.commit import folder
from emq_archive.model import LAST_ID, StreamId
from emq_archive.remote import history_of
from emq_archive.segment import open_segment, row_groups
from emq_archive.write.ship import LogShipper


@dataclass(slots=True)
class VersionErasure:
    """`removed`: versions with records of the job that are gone for good; `stay`: those that the store keeps, by name;
    `notes`: what the bucket does with deleted objects, a sentence each."""

    removed: int = 0
    stay: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def erase_versions(shipper: LogShipper, job: str, upto: StreamId = LAST_ID, *, remove: bool) -> VersionErasure:
    """Finds versions with records of an erased job that are not in the archive any more; with `remove` they are
    deleted, where the store allows it. Nothing to do for a store without versions. Raises what the store raises of
    listing and reading."""
    done, history = VersionErasure(), history_of(shipper.remote)
    if history is None:
        return done
    keeping = history.keeping()
    done.notes += [f"the store did not tell what it keeps of deleted objects ({told})" for told in keeping.unknown]
    if not keeping.versions and not keeping.unknown:
        return done
    live = {segment.key for segment in shipper.catalog.segments()}
    for version in history.versions(folder(shipper.ref)):
        if (version.latest and version.key in live) or not _holds(history.read(version), version.key, job, upto):
            continue
        if remove:
            try:
                history.delete(version)
            except StoreRefusedError as fault:
                done.notes.append(f"{version} stays: {fault.what}")
            else:
                done.removed += 1
                continue
        done.stay.append(str(version))
    if done.stay:
        done.notes.append(_said(len(done.stay), keeping.locked, keeping.expires_days, remove))
    return done


def _said(count: int, locked: bool, days: int | None, remove: bool) -> str:
    text = f"the bucket keeps {count} older version{'' if count == 1 else 's'} of segments with the job"
    if locked:
        text += ", some under object lock"
    if days is not None:
        text += f"; its lifecycle takes them away after {days} days"
    return text if remove else f"{text}; --versions removes them where the store allows it"


def _holds(body: bytes | None, key: str, job: str, upto: StreamId) -> bool:
    if body is None:
        return False
    gone = {job.encode("utf-8"): upto}
    try:
        return any(len(places_left(chunk, gone)) < len(chunk) for chunk in row_groups(open_segment(body, key), key))
    except DamagedArchiveError:
        return key.endswith(".parquet")  # who knows what is in it
