"""Whether a log once went on behind its last commit. Its chain can't tell; what lies beside it, and elsewhere, may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emq_archive.errors import DamagedArchiveError
from emq_archive.log.commit import MAX_COMMIT_BYTES, commit_key, folder
from emq_archive.log.walk import Walk, checkpoints_of, every_key
from emq_archive.model import StreamRef, parse_id, show_id
from emq_archive.ports import Remote
from emq_archive.segment import open_segment, row_groups
from emq_ops.protocol import ids
from emq_ops.protocol.errors import EmqError

NAMED = 3
"""So many objects are named in a line."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What others noted of the log: the hash of a commit (`head`, hex), and the ``EVT`` id of the newest record that
    the server knows as archived (`watermark`); None: nobody did."""

    head: str | None = None
    watermark: str | None = None


def objects_beside(remote: Remote, ref: StreamRef) -> list[str]:
    """The keys of a stream's objects, to be listed before its log is read: a writer commits after it wrote."""
    return list(every_key(remote, folder(ref)))


def lost_behind(remote: Remote, walked: Walk, objects: Iterable[str], noted: Noted) -> list[str]:
    """What speaks for commits that are missing behind the last, a line each. Raises what the remote raises."""
    end = commit_key(walked.ref, walked.last)
    found: list[str] = []
    if (furthest := max(checkpoints_of(remote, walked.ref), default=0)) > walked.last:
        found.append(f"a checkpoint after commit {furthest} is there, and the log ends with {end}")
    if noted.head is not None and noted.head.lower() not in walked.hashes.values():
        found.append(f"no commit of the log has the hash {noted.head[:64]}: its end is missing, or it is another log")
    if noted.watermark is not None and _beyond(noted.watermark, walked):
        reach = show_id(walked.reach) if walked.reach else "nothing"
        found.append(f"the server says that record {noted.watermark} was archived, and the log goes to {reach} ({end})")
    orphans = [key for key in sorted(set(objects) - walked.named) if _holds_more(remote, key, walked)]
    if orphans:
        more = f" and {len(orphans) - NAMED} more" if len(orphans) > NAMED else ""
        found.append(
            f"{', '.join(orphans[:NAMED])}{more}: holds records that no commit names: the commit is missing behind "
            f"{end}, or its writer was killed before it, or is about to write it; a compaction would remove it in time"
        )
    return found


def _holds_more(remote: Remote, key: str, walked: Walk) -> bool:
    """Whether an object that no commit names holds what the log does not reach: what a writer left that was killed was
    mostly written again."""
    try:
        body = remote.get(key, most=MAX_COMMIT_BYTES)
        ends = [chunk.last for chunk in row_groups(open_segment(body, key), key)] if body is not None else []
    except DamagedArchiveError:
        return False  # whatever it is, no record comes of it
    return any(walked.reach is None or end > walked.reach for end in ends)


def _beyond(watermark: str, walked: Walk) -> bool:
    try:
        at = parse_id(ids.parse(watermark).stream_id)
    except EmqError:
        return False
    return walked.reach is None or at > walked.reach
