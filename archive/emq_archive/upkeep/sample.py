"""Reading some segments again, the longest unchecked first: what `verify` does for all, by and by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from emq_archive.errors import DamagedArchiveError
from emq_archive.local.catalog import Catalog
from emq_archive.local.store import SqlStore
from emq_archive.log.commit import Segment
from emq_archive.log.log import CommitLog
from emq_archive.log.standing import standing_damage
from emq_archive.model import StreamRef, Writer
from emq_archive.ports import Remote
from emq_ops.protocol import deadline


@dataclass(slots=True)
class Checked:
    """At first what may be checked, and then what is left of it: `objects` and `bytes`."""

    objects: int
    bytes: int


@dataclass(slots=True)
class Sampled:
    """`objects` of `bytes` were read and are whole; `faults`: a line each; `fresh`: nobody knew of them before;
    `damage`: what is known to be wrong with the archive now."""

    objects: int = 0
    bytes: int = 0
    faults: list[str] = field(default_factory=list)
    fresh: bool = False
    damage: str | None = None


def check_some(local: SqlStore, remote: Remote, ref: StreamRef, left: Checked, *, now_ms: int) -> Sampled:
    """Looks whether the head of the log stands as it was read, and reads segments as far as `left` goes, from which it
    takes. What it finds is remembered as damage: nothing is trimmed or pruned until ``verify`` finds the archive whole
    or, where commits alone were missing, until these are there again. Raises what the stores raise, not what it
    finds."""
    catalog, found = Catalog(local, ref), Sampled()
    if not catalog.known().lsn:
        return found
    log = CommitLog(catalog, remote, Writer(""))
    in_log = False
    try:
        log.read()
    except DamagedArchiveError as fault:
        found.faults.append(fault.what)
        in_log = True
    for segment in catalog.longest_unchecked(left.objects):
        if left.objects <= 0 or (found.objects and segment.bytes > left.bytes):
            break
        deadline.check(f"checking {segment.key}")
        left.objects -= 1
        left.bytes -= segment.bytes
        wrong = _fault_of(remote, segment)
        if wrong is None:
            found.objects += 1
            found.bytes += segment.bytes
            catalog.checked(segment, now_ms)
        elif _still_live(log, segment):
            found.faults.append(wrong)
    known = catalog.known()
    if found.faults:
        in_log = in_log and len(found.faults) == 1 and (known.damage is None or bool(known.damage_in_log))
        found.damage = catalog.damaged(found.faults, in_log=in_log)
        found.fresh = found.damage != known.damage
    else:
        found.damage = standing_damage(catalog, remote)
    return found


def _fault_of(remote: Remote, segment: Segment) -> str | None:
    size = remote.size(segment.key)
    if size is None:
        return f"{segment.key}: missing, and commit {segment.lsn} names it"
    if size != segment.bytes:
        return f"{segment.key}: has {size} bytes, commit {segment.lsn} says {segment.bytes}"
    body = remote.get(segment.key, most=segment.bytes)
    if body is None or hashlib.sha256(body).hexdigest() != segment.sha256:
        return f"{segment.key}: its bytes changed (SHA-256 is not what commit {segment.lsn} says)"
    return None


def _still_live(log: CommitLog, segment: Segment) -> bool:
    """Whether the log still names it: another host may have merged it meanwhile."""
    try:
        log.read()
    except DamagedArchiveError:
        return True
    return any(one.lsn == segment.lsn for one in log.catalog.segments(segment.first, segment.last))
