"""What a trim would do now: for plans and dry runs. Takes no lease and changes nothing, neither server nor ledger."""

from __future__ import annotations

from collections.abc import Collection

from emq_ops.ledger import deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.victims import Victim
from emq_ops.passes.frame.order import Prediction
from emq_ops.passes.observe.reconcile import PAGE, identities
from emq_ops.passes.report import name_some
from emq_ops.passes.trim.call import call_tail, note_stay
from emq_ops.passes.trim.report import TrimReport
from emq_ops.policy.models import DeadPolicy
from emq_ops.protocol.ids import is_valid, min_id
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server


def predict_trim(
    server: Server, queue: str, policy: DeadPolicy, ledger: Ledger | None, *, only: Collection[str] | None = None
) -> Prediction:
    """Looks at the dead set as it is now. Jobs that the ledger does not know (all of them with None) count as first
    seen now. With neither `keep` nor `max_age_ms` nothing would go. Raises DamagedError, UnreachableError."""
    keys = keys_of(queue)
    now_ms = server.now_ms(queue)
    report = TrimReport(keys.queue, status="dry", keep=policy.keep, max_age_ms=policy.max_age_ms)
    dead = _look(server, keys.queue, ledger, now_ms, report)
    by_mint = policy.age_by == "minted"
    dead.sort(key=lambda v: v.job if by_mint else (v.first_seen_ms, v.job))
    count = 0 if policy.keep is None else max(0, len(dead) - policy.keep)
    if policy.max_age_ms is not None:
        oldest, first_id = now_ms - policy.max_age_ms, min_id("JOB", now_ms - policy.max_age_ms)
        old = sum(v.job < first_id for v in dead) if by_mint else sum(v.first_seen_ms < oldest for v in dead)
        count = max(count, old)
    victims = [victim for victim in dead[:count] if only is None or victim.job in only]
    staying: set[str] = set()
    for first in range(0, len(victims), policy.slice):
        args = [keys.base, *call_tail(victims[first : first + policy.slice], None, None)]
        _, stay = server.run(load("dead_check"), [keys.dead], args, readonly=True)
        note_stay(report, stay)
        staying.update(job.decode("ascii") for job in stay[::2])
    victims = [victim for victim in victims if victim.job not in staying]
    report.victims = len(victims)
    report.left = report.dead_before - report.victims
    name_some(report.victim_jobs, [victim.job for victim in victims])
    jobs = tuple(victim.job for victim in victims)
    return Prediction(report, jobs, len(jobs))


def _look(server: Server, queue: str, ledger: Ledger | None, now_ms: int, report: TrimReport) -> list[Victim]:
    keys = keys_of(queue)
    found: dict[str, Victim] = {}
    cursor = b"0"
    while True:
        cursor, flat = server.read("ZSCAN", keys.dead, cursor, "COUNT", PAGE)
        members = flat[::2]
        jobs = [m.decode("ascii") for m in members if is_valid(m)]
        report.malformed += len(members) - len(jobs)
        seen = {}
        if ledger is not None:
            with ledger.read() as connection:
                seen = deaths.ages(connection, queue, jobs)
        for first in range(0, len(jobs), PAGE):  # a small set comes whole, whatever COUNT says
            for job, identity in identities(server, keys, jobs[first : first + PAGE])[0].items():
                found[job] = Victim(job, *identity, first_seen_ms=seen.get((job, *identity), now_ms))
        if cursor == b"0":
            break
    report.dead_before = len(found) + report.malformed
    return list(found.values())
