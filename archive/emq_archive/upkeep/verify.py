"""`verify`: every commit and every segment against hashes, counts and chain; each fault names what it is about."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from emq_archive.errors import DamagedArchiveError
from emq_archive.local.catalog import Catalog
from emq_archive.local.rows import day_of
from emq_archive.local.store import SqlStore
from emq_archive.log.commit import (
    Commit,
    Segment,
    checkpoint_folder,
    checkpoint_lsn,
    commit_key,
    folder,
    hash_of,
    lsn_of,
)
from emq_archive.log.log import Log
from emq_archive.model import StreamId, StreamRef, Writer, show_id
from emq_archive.ports import Remote
from emq_archive.reports import Row
from emq_archive.segment import open_segment, row_groups
from emq_ops.protocol import deadline

_PAGE = 1000
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Verified(Row):
    """What was looked at, and `faults`: a line each, naming the object. `orphans`: objects that no commit names (left
    by a killed process, or merged away and still in their grace): not part of the archive, and no fault."""

    queue: str
    stream: str
    commits: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    orphans: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.faults


def verify(local: SqlStore, remote: Remote, ref: StreamRef, *, progress: Progress | None = None) -> Verified:
    """Re-reads the whole archive of a stream. What it finds is remembered in the local database: nothing is trimmed on
    top of a damaged archive, until `verify` finds it whole. Raises what the stores raise, not what it finds."""
    catalog = Catalog(local, ref)
    found = Verified(ref.queue, ref.stream)
    live = _walk_log(catalog, remote, found)
    for number, segment in enumerate(sorted(live.values(), key=lambda s: s.lsn), 1):
        if progress is not None:
            progress(number, len(live))
        deadline.check(f"verifying {segment.key}")
        try:
            body = remote.get(segment.key)
            if body is None:
                found.faults.append(f"{segment.key}: missing, and commit {segment.lsn} names it")
            else:
                _check_segment(segment, body, ref.kind, found)
        except DamagedArchiveError as fault:
            found.faults.append(f"{segment.key}: {fault.what}")
        found.segments += 1
    found.orphans = sum(1 for key in _keys(remote, folder(ref)) if key not in live)
    if catalog.known().lsn or found.commits:
        catalog.set(damage="; ".join(found.faults[:5])[:1000] if found.faults else None)
    return found


def _walk_log(catalog: Catalog, remote: Remote, found: Verified) -> dict[str, Segment]:
    """Checks the chain; answers the live segments by key."""
    ref = catalog.ref
    live: dict[str, Segment] = {}
    previous: str | None = ""
    state: str | None = None
    expected = 1
    hashes: dict[int, str] = {}
    checkpoints = {checkpoint_lsn(key) for key in _keys(remote, checkpoint_folder(ref))}
    snapshots: dict[int, set[str]] = {}
    for key in _commits(remote, ref):
        lsn = lsn_of(key) or 0
        while expected < lsn:
            found.faults.append(f"{commit_key(ref, expected)}: missing from the log")
            expected, previous = expected + 1, None
        expected = lsn + 1
        found.commits += 1
        body = remote.get(key)
        if body is None:
            found.faults.append(f"{key}: missing from the log")
            previous = None
            continue
        try:
            commit = Commit.of(body, key)
        except DamagedArchiveError as fault:
            found.faults.append(f"{key}: {fault.what}")
            previous = None
            continue
        if commit.lsn != lsn or commit.ref != ref:
            found.faults.append(f"{key}: says that it is commit {commit.lsn} of {commit.ref}")
        if previous is not None and commit.previous != previous:
            found.faults.append(f"{key}: does not follow the commit before it (its chain hash is another)")
        state = state or commit.state
        if commit.state != state:
            found.faults.append(f"{key}: is of state {commit.state}, the log belongs to {state}")
        previous = hash_of(body)
        for gone, name in commit.remove:
            if live.pop(name, None) is None:
                found.faults.append(f"{key}: takes out {name} of commit {gone}, which is not in the archive")
        live.update({segment.key: segment for segment in commit.add})
        if lsn in checkpoints:
            hashes[lsn], snapshots[lsn] = previous, set(live)
    known = catalog.known()
    for lsn in range(expected, known.lsn + 1):
        found.faults.append(f"{commit_key(ref, lsn)}: missing from the log, and this host saw it")
    if known.lsn and expected - 1 == known.lsn and previous is not None and previous != known.head:
        found.faults.append(f"{commit_key(ref, known.lsn)}: is not the commit that this host saw")
    _check_checkpoints(catalog, remote, checkpoints, snapshots, found)
    return live


def _check_checkpoints(
    catalog: Catalog, remote: Remote, checkpoints: set[int], snapshots: dict[int, set[str]], found: Verified
) -> None:
    log = Log(catalog, remote, Writer(""))
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


def _commits(remote: Remote, ref: StreamRef) -> Iterator[str]:
    for key in _keys(remote, commit_key(ref, 0).rpartition("/")[0] + "/0"):
        if lsn_of(key):
            yield key


def _keys(remote: Remote, prefix: str) -> Iterator[str]:
    after = ""
    while True:
        page = remote.list(prefix, after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1]
