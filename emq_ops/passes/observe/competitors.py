"""Competing recoverers: leases that leave `active` past their deadline, and no pass of ours took them.

Each pass samples the leases that will lapse next; the next pass looks what became of them. A lease that lapsed and was
taken by somebody else shows as a job that waits, or was claimed again, without an error: a retry leaves one, so only
jobs that never failed are sampled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emq_ops.ledger.alerts import RECOVERER, SWEEPER, Watched, note_competitor, watch, watched
from emq_ops.passes.frame.context import Context
from emq_ops.passes.observe.rows import number_of
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.server import Server

SAMPLE = 50
_TEXTS = {
    RECOVERER: "leases are recovered by somebody else, uncounted: workers that reap see a stalled job before the sweep",
    SWEEPER: "stalls are counted by another sweeper: two of them dead-letter jobs sooner than configured",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """What a row says of a lease that was sampled."""

    state: bytes | None
    attempts: int
    stalls: int
    failed: bool


def detect_competitor(lease: Watched, fate: Fate) -> str | None:
    """Which competitor a lapsed lease shows, None for none. Pure.

    The lease was not ours to recover, and has lapsed. A job that is gone was completed late; one with an error was
    retried by its worker; one that is still active under its token is due, or was extended.
    """
    if fate.state is None or fate.failed:
        return None
    if fate.stalls > lease.stalls:
        return SWEEPER
    if fate.attempts > lease.token or (fate.attempts == lease.token and fate.state == b"pending"):
        return RECOVERER
    return None


def _fates(server: Server, queue: str, jobs: list[str]) -> list[Fate]:
    keys = keys_of(queue)
    rows = server.read_many([("HMGET", keys.row(j), "state", "attempts", "stalled", "last_error") for j in jobs])
    return [Fate(r[0], number_of(r[1], 0), number_of(r[2], 0), r[3] is not None) for r in rows]


def check_competitors(context: Context, now_ms: int, ours: Iterable[str]) -> list[str]:
    """Looks what became of the last sample and takes a new one; answers the kinds of competitors seen. `ours`: jobs
    that this pass settled. Call it once a pass, at its end."""
    server, ledger, queue, mine = context.server, context.ledger, context.queue, set(ours)
    with ledger.read() as connection:
        sample = watched(connection, queue)
    lapsed = [lease for lease in sample if lease.deadline_ms < now_ms and lease.job not in mine]
    seen: dict[str, list[str]] = {}
    for lease, fate in zip(lapsed, _fates(server, queue, [lease.job for lease in lapsed]), strict=True):
        kind = detect_competitor(lease, fate)
        if kind is not None:
            seen.setdefault(kind, []).append(lease.job)
    fresh = _sample(server, queue, now_ms)
    first: list[str] = []
    if seen or fresh or sample:
        with ledger.write() as connection:
            for kind, jobs in seen.items():
                if note_competitor(connection, queue, kind, now_ms, len(jobs), {"jobs": jobs[:10]}):
                    first.append(kind)
            watch(connection, queue, fresh)
    for kind in first:
        facts = {"kind": kind, "jobs": seen[kind][:10]}
        context.alert("competitor", _TEXTS[kind], now_ms, facts)
    return sorted(seen)


def _sample(server: Server, queue: str, now_ms: int) -> list[Watched]:
    flat = server.read("ZRANGEBYSCORE", keys_of(queue).active, f"({now_ms}", "+inf", "WITHSCORES", "LIMIT", 0, SAMPLE)
    found = {m.decode("ascii"): score_ms(s) for m, s in zip(flat[::2], flat[1::2], strict=True) if is_valid(m)}
    return [
        Watched(job, fate.attempts, found[job], fate.stalls)
        for job, fate in zip(found, _fates(server, queue, list(found)), strict=True)
        if fate.state is not None and not fate.failed
    ]
