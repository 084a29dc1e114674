"""The ledger keeps each death with its row and logs as they were first seen. What was edited since is kept anew before
a trim takes it away, so that an undo brings back what went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emq_archive.deadjob import dead_digest
from emq_archive.model import Pair
from emq_ops.ledger import contents, deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.snapshot import fingerprint, fingerprint_of, pack_row, unpack_death
from emq_ops.passes.observe.rows import read_dead
from emq_ops.passes.trim.archiver import ArchivedJob
from emq_ops.protocol.keyspace import Keys
from emq_ops.protocol.server import Server

_FACTS = {
    "first_seen_ms": b"seen_at",
    "cause": b"cause",
    "killed_by": b"killed_by",
    "deadline_ms": b"deadline",
    "evidence": b"evidence",
    "interruption": b"interruption",
}


def facts_and_fingerprints(
    ledger: Ledger, queue: str, jobs: Sequence[str]
) -> tuple[dict[str, Sequence[Pair]], dict[str, bytes | None]]:
    """By job: what goes into the archive of its death besides row and logs, and the fingerprint of its kept row."""
    facts: dict[str, Sequence[Pair]] = {}
    fingerprints: dict[str, bytes | None] = {}
    alike: dict[tuple[object, ...], Sequence[Pair]] = {}  # deaths that one pass found are told alike
    with ledger.read() as connection:
        rows = deaths.told(connection, queue, jobs, tuple(_FACTS))
    for row in rows:
        job: str = row[0]
        values: tuple[object, ...] = row[1:-1]
        fingerprints[job] = row[-1]
        pairs = alike.get(values)
        if pairs is None:
            named = zip(_FACTS.values(), values, strict=True)
            pairs = alike[values] = [(name, str(value).encode("utf-8")) for name, value in named if value is not None]
        facts[job] = pairs
    return facts, fingerprints


def renew_snapshots(
    server: Server,
    ledger: Ledger,
    keys: Keys,
    proven: Mapping[str, ArchivedJob],
    fingerprints: Mapping[str, bytes | None],
) -> int:
    """Keeps the rows and logs of those archived jobs whose kept ones are others; returns how many.
    `fingerprints`: of the kept ones, as far as they have any."""
    doubted = [
        job for job, archived in proven.items() if fingerprints.get(job) != fingerprint(archived.names, archived.digest)
    ]
    stale = _stale(ledger, keys.queue, doubted, proven) if doubted else []
    rows = read_dead(server, keys, stale)
    if rows:
        with ledger.write() as connection:
            kept = {job: (pack_row(*found), fingerprint_of(*found)) for job, found in rows.items()}
            contents.replace_snapshots(connection, keys.queue, kept)
    return len(rows)


def _stale(ledger: Ledger, queue: str, doubted: Sequence[str], proven: Mapping[str, ArchivedJob]) -> list[str]:
    """By what is kept: it may have no fingerprint (an earlier version kept it), or its fields another order."""
    with ledger.read() as connection:
        kept = contents.kept(connection, queue, doubted)
    return [job for job in doubted if job not in kept or not _is(kept[job], proven[job].names, proven[job].digest)]


def _is(body: bytes, names: Sequence[bytes], digest: str) -> bool:
    snapshot = unpack_death(body)
    row, logs = snapshot.row, snapshot.logs
    if len(row) != 2 * len(names):
        return False
    values: Sequence[bytes | None] = row[1::2]
    if tuple(row[::2]) != tuple(names):
        found = dict(zip(row[::2], values, strict=True))
        values = [found.get(name) for name in names]
    return dead_digest(values, logs) == digest
