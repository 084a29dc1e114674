"""The whole log, commit by commit: whether it is a chain, and what its entries add up to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from emq_archive.errors import DamagedArchiveError
from emq_archive.local.catalog import Known
from emq_archive.log.commit import (
    Commit,
    Segment,
    checkpoint_folder,
    checkpoint_lsn,
    commit_key,
    get_commit,
    hash_of,
    log_folder,
    lsn_of,
)
from emq_archive.log.signing import Signatures
from emq_archive.model import FIRST_ID, StreamId, StreamRef, parse_id
from emq_archive.ports import Remote
from emq_ops.protocol import ids

_PAGE = 1000
_GAP = 100_000
"""So many commits in a row may be missing; a larger number was made up, and is no list to keep."""


@dataclass(slots=True)
class Walk:
    """What stands in the log: its `commits`, the hash of each (`hashes`, by number), the segments that are `live` at
    its end, and `live_at` the number that this host knows as its head, commits that are `missing` and that no later
    entry gives up for lost, and `faults`, a line each. `named`: every segment that a commit ever added; `reach`: the
    highest id that was ever archived."""

    ref: StreamRef
    known: Known
    commits: int = 0
    last: int = 0
    hashes: dict[int, str] = field(default_factory=dict)
    live: dict[str, Segment] = field(default_factory=dict)
    live_at: dict[str, Segment] | None = None
    missing: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    snapshots: dict[int, set[str]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    reach: StreamId | None = None

    @property
    def rewritten(self) -> bool:
        """Whether another commit stands where this host knows the head to be."""
        there = self.hashes.get(self.known.lsn)
        return there is not None and there != self.known.head


def walk(remote: Remote, ref: StreamRef, known: Known, checkpoints: set[int]) -> Walk:
    """Reads every commit; notes the live segments at each of the `checkpoints`."""
    found = Walk(ref, known)
    odd: list[tuple[int, str]] = []
    signatures = Signatures(remote.sign)
    given_up: set[int] = set()
    previous: str | None = ""
    state: str | None = None
    for key in every_key(remote, log_folder(ref) + "0"):
        lsn = lsn_of(key, ref)
        if lsn is None:
            continue
        if lsn > found.last + _GAP:
            found.faults.append(f"{key}: is none of ours, {lsn - found.last} numbers after the one before it")
            continue
        if lsn > found.last + 1:
            found.missing.update(range(found.last + 1, lsn))
            previous = None
        found.last = lsn
        found.commits += 1
        try:
            body, commit = get_commit(remote, key)
        except DamagedArchiveError as fault:
            found.faults.append(fault.what)
            previous = None
            continue
        try:
            signatures.check(body, key)
        except DamagedArchiveError as fault:
            found.faults.append(fault.what)
        if commit.lsn != lsn or commit.ref != ref:
            found.faults.append(f"{key}: says that it is commit {commit.lsn} of {commit.ref}")
        if previous is not None and commit.previous != previous:
            found.faults.append(f"{key}: does not follow the commit before it (its chain hash is another)")
        state = state or commit.state
        if commit.state != state:
            found.faults.append(f"{key}: is of state {commit.state}, the log belongs to {state}")
        previous = found.hashes[lsn] = hash_of(body)
        for gone, name in commit.remove:
            if found.live.pop(name, None) is None:
                odd.append((gone, f"{key}: takes out {name} of commit {gone}, which is not in the archive"))
        found.live.update({segment.key: segment for segment in commit.add})
        _note_reach(found, commit)
        for first, last in commit.lost:
            given_up.update(lsn for lsn in found.missing if first <= lsn <= last)
        if lsn in checkpoints:
            found.snapshots[lsn] = set(found.live)
        if lsn == known.lsn:
            found.live_at = dict(found.live)
    if remote.sign is not None and found.commits and not signatures.seen:
        found.faults.append("the log is not signed, and this archive is read with a key (archive.sign)")
    if known.lsn > found.last + _GAP:
        found.faults.append(f"{commit_key(ref, known.lsn)}: this host saw it, and the log ends with {found.last}")
    else:
        found.missing.update(range(found.last + 1, known.lsn + 1))
    found.faults += [what for gone, what in odd if gone not in found.missing | given_up]
    found.missing -= given_up
    return found


def _note_reach(found: Walk, commit: Commit) -> None:
    found.named.update(segment.key for segment in commit.add)
    ends = [segment.last for segment in commit.add]
    ends += [parse_id(ids.parse(segment.evt).stream_id) for segment in commit.add if segment.evt is not None]
    ends += [parse_id(commit.after)] if commit.after is not None else []
    found.reach = max([*ends, found.reach or FIRST_ID], default=None)


def every_key(remote: Remote, prefix: str) -> Iterator[str]:
    """Every key that begins so, in order."""
    after = ""
    while True:
        page = remote.list(prefix, after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1]


def checkpoints_of(remote: Remote, ref: StreamRef) -> set[int]:
    """After which commits a checkpoint stands."""
    return {lsn for key in every_key(remote, checkpoint_folder(ref)) if (lsn := checkpoint_lsn(key, ref)) is not None}


def told_strange(remote: Remote, ref: StreamRef) -> list[str]:
    """A line for each object among commits and checkpoints that is none by its name. What ends with a slash is no
    object: stores show folders so."""
    return [
        f"{key}: is no {'checkpoint' if key.startswith(checkpoint_folder(ref)) else 'commit'} of ours"
        for key in every_key(remote, log_folder(ref))
        if lsn_of(key, ref) is None and checkpoint_lsn(key, ref) is None and not key.endswith("/")
    ]


def told_missing(found: Walk) -> list[str]:
    """A line for each commit that is missing."""
    seen = ", and this host saw it"
    return [
        f"{commit_key(found.ref, lsn)}: missing from the log{seen if found.last < lsn <= found.known.lsn else ''}"
        for lsn in sorted(found.missing)
    ]
