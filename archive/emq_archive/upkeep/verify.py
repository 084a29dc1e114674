"""`verify`: every commit and every segment against hashes, counts and chain; each fault names what it is about."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from emq_archive.errors import DamagedArchiveError
from emq_archive.local.catalog import Catalog
from emq_archive.local.rows import day_of
from emq_archive.local.store import SqlStore
from emq_archive.log.commit import Segment, commit_key, folder
from emq_archive.log.log import CommitLog
from emq_archive.log.walk import checkpoints_of, every_key, told_missing, told_strange, walk
from emq_archive.model import StreamId, StreamRef, Writer, show_id
from emq_archive.ports import Remote
from emq_archive.reports import Row
from emq_archive.segment import open_segment, row_groups
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import one_line

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Verified(Row):
    """What was looked at, and `faults`: a line each, naming the object. `orphans`: objects that no commit names (left
    by a killed process, or merged away and still in their grace): not part of the archive, and no fault. `head`: the
    hash of the last commit; note it elsewhere, and `verify` can tell later whether the log was rewritten."""

    queue: str
    stream: str
    commits: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    orphans: int = 0
    head: str | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.faults


def verify(
    local: SqlStore, remote: Remote, ref: StreamRef, *, expect_head: str | None = None, progress: Progress | None = None
) -> Verified:
    """Re-reads the whole archive of a stream. What it finds is remembered in the local database: nothing is trimmed on
    top of a damaged archive, until `verify` finds it whole.

    The log must hold the commit that this host knows as its head, whatever follows it, and say of the segments what the
    local catalogue says; and hold the commit of hash `expect_head` (hex), which somebody noted elsewhere. Raises what
    the stores raise, not what it finds."""
    catalog = Catalog(local, ref)
    known, found = catalog.known(), Verified(ref.queue, ref.stream)
    # Only of use against the same number of commits: other hosts may have gone on since.
    catalogued = {segment.key: segment.sha256 for segment in catalog.segments()}
    checkpoints = checkpoints_of(remote, ref)
    walked = walk(remote, ref, known, checkpoints)
    found.commits, found.head = walked.commits, walked.hashes.get(walked.last)
    found.faults += [*told_missing(walked), *walked.faults, *told_strange(remote, ref)]
    of_log = len(found.faults)
    if walked.rewritten:
        found.faults.append(f"{commit_key(ref, known.lsn)}: is not the commit that this host saw")
    elif walked.live_at is not None and not walked.missing:
        logged = {key: segment.sha256 for key, segment in walked.live_at.items()}
        odd = sorted(key for key in {*catalogued, *logged} if catalogued.get(key) != logged.get(key))
        if odd:
            found.faults.append(f"{len(odd)} segments are not what the local catalogue says, the first is {odd[0]}")
    if expect_head is not None and expect_head.lower() not in walked.hashes.values():
        found.faults.append(
            f"no commit of the log has the hash {expect_head[:64]}: it was rewritten, or is another log"
        )
    _check_checkpoints(catalog, remote, checkpoints, walked.snapshots, found)
    for number, segment in enumerate(sorted(walked.live.values(), key=lambda s: s.lsn), 1):
        if progress is not None:
            progress(number, len(walked.live))
        deadline.check(f"verifying {segment.key}")
        try:
            body = remote.get(segment.key, most=segment.bytes)
            if body is None:
                found.faults.append(f"{segment.key}: missing, and commit {segment.lsn} names it")
            else:
                _check_segment(segment, body, ref.kind, found)
        except DamagedArchiveError as fault:
            found.faults.append(f"{segment.key}: {fault.what}")
        found.segments += 1
    found.orphans = sum(1 for key in every_key(remote, folder(ref)) if key not in walked.live)
    found.faults = [one_line(fault) for fault in found.faults]  # names in them are whatever somebody chose
    if known.lsn or found.commits:
        catalog.damaged(found.faults, in_log=len(found.faults) == of_log)
    return found


def _check_checkpoints(
    catalog: Catalog, remote: Remote, checkpoints: set[int], snapshots: dict[int, set[str]], found: Verified
) -> None:
    log = CommitLog(catalog, remote, Writer(""))
    for lsn in sorted(checkpoints):
        try:
            told = log.read_checkpoint(lsn)
        except DamagedArchiveError as fault:
            found.faults.append(fault.what)
            continue
        if lsn in snapshots and {segment["key"] for segment in told["segments"]} != snapshots[lsn]:
            found.faults.append(f"the checkpoint after commit {lsn} does not say what the log says")


def _check_segment(segment: Segment, body: bytes, kind: str, found: Verified) -> None:
    key = segment.key
    if len(body) != segment.bytes:
        found.faults.append(f"{key}: has {len(body)} bytes, commit {segment.lsn} says {segment.bytes}")
        return
    if hashlib.sha256(body).hexdigest() != segment.sha256:
        found.faults.append(f"{key}: its bytes changed (SHA-256 is not what commit {segment.lsn} says)")
        return
    count = 0
    last: StreamId | None = None
    first: StreamId | None = None
    for chunk in row_groups(open_segment(body, key), key):
        count += len(chunk)
        if not chunk.sorted or (last is not None and chunk.first <= last):
            found.faults.append(f"{key}: its records are not in order")
            return
        first, last = first or chunk.first, chunk.last
        if day_of(chunk.first[0]) != segment.day or day_of(chunk.last[0]) != segment.day:
            found.faults.append(f"{key}: holds records of another day")
    if count != segment.records or first != segment.first or last != segment.last:
        ends = f"{show_id(first)}..{show_id(last)}" if first and last else "nothing"
        found.faults.append(
            f"{key}: holds {count} records {ends}, commit {segment.lsn} says {segment.records} "
            f"{show_id(segment.first)}..{show_id(segment.last)}"
        )
    found.records += count
    found.bytes += len(body)
