"""What the product rests on beside the keyspace: server, state, leases, clocks, the archive's two sides, disk space."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from emq_archive.local.catalog import Catalog
from emq_archive.local.store import SqlStore
from emq_archive.log.commit import commit_key
from emq_archive.model import StreamRef
from emq_archive.ports import Remote
from emq_ops.audit.doctor.finding import Finding
from emq_ops.database.engine import Database
from emq_ops.ledger import tokens
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import states_of
from emq_ops.passes.lease.owner import LeaseInfo, foreign_queues, lease_infos
from emq_ops.protocol import files
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.server import Server

SKEW_MS = 5_000
"""Clocks that are further apart are told."""
SAMPLE = 20
"""So many segments of a stream are looked for, the newest first."""
LOW_BYTES = 100 * 1024 * 1024
"""Less free space than this is told."""


def examine_archive(
    local: SqlStore, remote: Remote | None, queues: Iterable[str], states: Collection[str]
) -> list[Finding]:
    """What is wrong with the archives of these queues: marked damaged, another state's, the head of a log or a segment
    that the store has not. `states`: those that are ours (none: nobody knows). Reads heads and sizes only. A store that
    does not answer is a finding too."""
    wanted = set(queues)
    found: list[Finding] = []
    try:
        local.database.proven()
    except EmqError as fault:
        found.append(Finding("", "archive_unreadable", local.database.where.encode(), str(fault)))
    for ref in local.streams():
        if ref.queue in wanted:
            found += _examine_stream(local, remote, ref, states)
    return found


def _examine_stream(
    local: SqlStore, remote: Remote | None, ref: StreamRef, states: Collection[str]
) -> Iterator[Finding]:
    name, catalog = str(ref).encode(), Catalog(local, ref)
    known = catalog.known()
    if known.damage:
        yield Finding(ref.queue, "archive_damaged", name, known.damage)
    if known.state and states and known.state not in states:
        yield Finding(ref.queue, "foreign_archive", name, f"its log is of state {known.state}, which is not ours")
    if remote is None or not known.lsn:
        return
    try:
        if remote.size(commit_key(ref, known.lsn)) is None:
            yield Finding(ref.queue, "archive_head_missing", name, f"commit {known.lsn} is not in {remote.url}")
        newest = list(catalog.segments())[-SAMPLE:]
        for segment in newest:
            size = remote.size(segment.key)
            if size != segment.bytes:
                said = "is not there" if size is None else f"has {size} bytes, not {segment.bytes}"
                yield Finding(ref.queue, "archive_damaged", segment.key.encode(), said)
    except EmqError as fault:
        yield Finding(ref.queue, "store_unreachable", name, str(fault))


def examine_server(server: Server) -> list[Finding]:
    """Whether the server's data comes to its disk."""
    lines = server.read("INFO", "persistence").decode("utf-8", "replace").splitlines()
    facts = dict(line.partition(":")[::2] for line in lines)
    return [
        Finding("", "server_not_durable", server.where.encode(), f"{what} failed")
        for name, what in _TO_DISK.items()
        if facts.get(name, "ok") != "ok"
    ]


_TO_DISK = {
    "aof_last_write_status": "its last write to the append-only file",
    "rdb_last_bgsave_status": "its last save",
}
"""What INFO says of the server's own files."""


def examine_state(database: Database) -> list[Finding]:
    """Whether the state can be read whole and written to."""
    try:
        database.proven()
    except EmqError as fault:
        return [Finding("", "state_unusable", database.where.encode(), str(fault))]
    return []


def examine_leases(server: Server, ledger: Ledger, queues: Sequence[str]) -> list[Finding]:
    """The queues that another state leads, or another database of this one; and those whose lease carries a token that
    this database never gave out, so that it is older than what was done under it."""
    infos = lease_infos(server, queues)
    leases = {queue: found for queue, found in infos.items() if isinstance(found, LeaseInfo)}
    foreign = foreign_queues(ledger, leases)
    found = [Finding(queue, "foreign_lease", fault.state.encode(), str(fault)) for queue, fault in foreign.items()]
    carried = {queue: lease.token for queue, lease in leases.items() if queue not in foreign}
    return found + _behind(ledger, carried, "its lease")


def examine_logs(local: SqlStore, ledger: Ledger, queues: Iterable[str]) -> list[Finding]:
    """The queues of which a log of ours carries a token that this database never gave out."""
    wanted, states, carried = set(queues), states_of(ledger), dict[str, int]()
    for ref in local.streams():
        known = Catalog(local, ref).known()
        if ref.queue in wanted and known.state in states:
            carried[ref.queue] = max(known.token, carried.get(ref.queue, 0))
    return _behind(ledger, carried, "the log of its archive")


def _behind(ledger: Ledger, carried: Mapping[str, int], where: str) -> list[Finding]:
    given = tokens.highest(ledger, sorted(carried))
    told = "; put back the newest backup, or go on: the next run takes a token above"
    return [
        Finding(
            queue, "state_behind", ledger.where.encode(), f"{where} carries token {token}, ours end at {ours}{told}"
        )
        for queue, token in sorted(carried.items())
        if token > (ours := given.get(queue, 0))
    ]


def examine_clocks(clocks: Mapping[str, int]) -> list[Finding]:
    """Clocks (unix ms, read at one moment) that are far from the first of them."""
    (reference, now), *others = clocks.items()
    return [
        Finding("", "clock_skew", name.encode(), f"{abs(ms - now) // 1000} s {_side(ms - now)} {reference}")
        for name, ms in others
        if abs(ms - now) > SKEW_MS
    ]


def _side(difference: int) -> str:
    return "ahead of" if difference > 0 else "behind"


def examine_rights(databases: Iterable[Path]) -> list[Finding]:
    """Databases that others may get at; those of ours were tightened when they were opened."""
    told = ((path, files.loose(path)) for path in dict.fromkeys(databases))
    return [Finding("", "open_file", str(path).encode(), said) for path, said in told if said is not None]


def examine_disk(folders: Iterable[Path]) -> list[Finding]:
    """Folders of ours on file systems that are nearly full."""
    found = []
    for folder in dict.fromkeys(folders):
        there = next((path for path in itertools.chain([folder], folder.parents) if path.exists()), None)
        if there is not None and (free := shutil.disk_usage(there).free) < LOW_BYTES:
            found.append(Finding("", "disk_low", str(folder).encode(), f"{free // 1024 // 1024} MiB are free"))
    return found
