"""What each interruption did: who was in flight across it, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.audit.competing import competing
from emq_ops.audit.suspects import BURST, Burst, bursts, clock
from emq_ops.ledger import interruptions
from emq_ops.ledger.interruptions import IN_FLIGHT, Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.observe.competitors import SAMPLE
from emq_ops.protocol.ids import at

NAMED = 50


@dataclass(slots=True)
class InterruptionOutcome:
    """An interruption, and what it did. `others`: in flight across it and settled by no sweep of ours (their workers
    went on, or recovered them), None without a census. `jobs`: the first of each kind by name. `more_lost`: as many
    vanished in flight as a pass notes of a queue, so there may have been more."""

    cut: Interruption
    others: int | None
    jobs: dict[str, list[str]] = field(default_factory=dict)
    more_lost: bool = False

    def as_row(self) -> dict[str, Any]:
        """As a plain dict. `started` (None: nobody was in contact before, nor was a job in flight) and `ended` are
        ISO 8601 in UTC, and in unix ms beside them; `started_is` and `ended_is` say what each is the instant of: the
        server went away after the one and was there again by the other."""
        cut = self.cut
        return {
            "id": cut.id,
            "queue": cut.queue,
            "kind": cut.kind,
            "started": iso(cut.started_ms),
            "ended": iso(cut.ended_ms),
            "started_ms": cut.started_ms,
            "ended_ms": cut.ended_ms,
            "started_is": started_is(cut),
            "ended_is": ended_is(cut),
            "in_flight": cut.in_flight,
            "recovered": cut.recovered,
            "exempted": cut.exempted,
            "died": cut.died,
            "vanished": cut.vanished,
            "others": self.others,
            "went_back": cut.went_back,
            "census": cut.census_ms is not None,
            "run_before": cut.run_before,
            "run_after": cut.run_after,
            "evidence": cut.evidence,
            "jobs": self.jobs,
        }


@dataclass(slots=True)
class RestartAudit:
    """Interruptions, oldest first, and the bursts beside them."""

    outcomes: list[InterruptionOutcome] = field(default_factory=list)
    bursts: list[Burst] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for JSON."""
        return {
            "interruptions": [one.as_row() for one in self.outcomes],
            "bursts": [burst.as_row() for burst in self.bursts],
            "notes": self.notes,
        }


def started_is(cut: Interruption) -> str | None:
    """What `started_ms` is the instant of; None where there is none."""
    if cut.started_ms is None:
        return None
    return "newest job in flight minted" if "started_by" in cut.evidence else "last seen alive"


def ended_is(cut: Interruption) -> str:
    """What `ended_ms` is the instant of."""
    return "its process began, to a second" if cut.kind == interruptions.RESTART else "seen again"


def iso(ms: int | None) -> str | None:
    """An instant as ISO 8601 in UTC, to the ms."""
    return None if ms is None else at(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def audit_restarts(
    ledger: Ledger | None, queues: Sequence[str] | None = None, *, since_ms: int = 0, burst: int = BURST
) -> RestartAudit:
    """Tells every interruption that the ledger has of `queues` (None: all) that ended at `since_ms` or later."""
    out = RestartAudit()
    if ledger is None:
        out.notes.append("no state database: no interruption was ever recorded")
        return out
    out.notes += competing(ledger, queues)
    found = interruptions.listing(ledger, since_ms=since_ms)
    wanted = None if queues is None else set(queues)
    out.outcomes = [_outcome_of(ledger, cut) for cut in found if wanted is None or cut.queue in wanted]
    out.notes += [
        f"{one.cut.queue}: at least {one.cut.vanished} vanished in the {one.cut.kind} that ended "
        f"{clock(one.cut.ended_ms)}: of the jobs in flight a pass notes {SAMPLE} a queue"
        for one in out.outcomes
        if one.more_lost
    ]
    found_bursts = bursts(ledger, least=burst, since_ms=since_ms)
    out.bursts = [one for one in found_bursts if wanted is None or one.queue in wanted]
    return out


def _outcome_of(ledger: Ledger, cut: Interruption) -> InterruptionOutcome:
    jobs: dict[str, list[str]] = {}
    with ledger.read() as connection:
        outcomes = interruptions.outcomes_of(connection, cut.id)
        lost = interruptions.vanished_of(connection, cut.id) if cut.vanished else {}
    counts: Counter[str] = Counter()
    for job in sorted(outcomes):
        kind = "vanished" if job in lost else outcomes[job] or "others"
        counts[kind] += 1
        jobs.setdefault(kind, [])
        if counts[kind] <= NAMED:
            jobs[kind].append(job)
    gone = sorted(job for job in lost if job not in outcomes)
    if gone:
        jobs["vanished"] = (jobs.get("vanished", []) + gone)[:NAMED]
    jobs = {kind: jobs[kind] for kind in ("exempted", "recovered", "died", "vanished", "others") if kind in jobs}
    more_lost = sum(was == IN_FLIGHT for was in lost.values()) >= SAMPLE
    return InterruptionOutcome(cut, counts["others"] if cut.census_ms is not None else None, jobs, more_lost)
