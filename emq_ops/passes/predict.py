"""What a pass would do now: for plans and dry runs. Takes no lease and changes nothing, neither server nor ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from emq_ops.ledger import deaths as book
from emq_ops.ledger import interruptions as cuts
from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.victims import Victim
from emq_ops.passes.observe.evidence import JudgingContext, Lease, judge
from emq_ops.passes.observe.interruptions import compare, describe, judging_context
from emq_ops.passes.observe.queue_state import QueueState, observe, restored
from emq_ops.passes.observe.reconcile import PAGE, identities
from emq_ops.passes.observe.rows import number_of, token_of
from emq_ops.passes.report import SweepReport, TrimReport, name_some
from emq_ops.passes.sweep.guard import bound
from emq_ops.passes.trim.dead_trim import call_tail, note_stay
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.protocol.ids import is_valid, min_id
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server


@dataclass(slots=True)
class Prediction:
    """`victims`: who would go, oldest first; `report`: the same in numbers, with those that would be skipped
    (``status`` dry)."""

    report: TrimReport
    victims: list[Victim] = field(default_factory=list)


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
    return Prediction(report, victims)


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
                seen = book.ages(connection, queue, jobs)
        for first in range(0, len(jobs), PAGE):  # a small set comes whole, whatever COUNT says
            for job, identity in identities(server, keys, jobs[first : first + PAGE]).items():
                found[job] = Victim(job, *identity, first_seen_ms=seen.get((job, *identity), now_ms))
        if cursor == b"0":
            break
    report.dead_before = len(found) + report.malformed
    return list(found.values())


def predict_sweep(
    server: Server,
    queue: str,
    policy: StalledPolicy,
    ledger: Ledger | None,
    *,
    windows: Sequence[Window] = (),
) -> SweepReport:
    """What a sweep would do with the leases that are due now (``status`` dry). An interruption that nobody noticed yet
    is judged as the sweep would, with a census of now. Raises DamagedError, UnreachableError."""
    sight = observe(server, queue)
    report = SweepReport(sight.queue, status="dry", max_stalled=policy.max_stalled, restart=policy.restart)
    scene = _scene(server, sight, policy, ledger, windows)
    exempting = policy.restart == "exempt"
    keys = keys_of(queue)
    for batch in _due(server, keys.active, sight.now_ms):
        jobs = list(batch)
        rows = server.read_many([("HMGET", keys.row(j), "stalled", "attempts", "lease_epoch", "state") for j in jobs])
        spent = server.read_many([("HGET", keys.exempt, job) for job in jobs])
        for job, row, exemptions in zip(jobs, rows, spent, strict=True):
            lease = Lease(job, batch[job], token_of(row[1]), (row[2] or b"").decode("utf-8", "replace"))
            exempt = exempting and judge(lease, _with_census(ledger, scene, lease)).exempt
            forced = exempt and number_of(exemptions, 0) >= policy.max_exempt
            ghost = all(value is None for value in row)
            _count(report, job, exempt=exempt and not forced, forced=forced, ghost=ghost, stalls=number_of(row[0], 0))
    most = bound(policy, sight.active)
    if most is not None and report.dead > most:
        report.notes.append(f"{report.dead} would be dead-lettered, more than the {most} allowed: the pass would stop")
    return report


def _count(report: SweepReport, job: str, *, exempt: bool, forced: bool, ghost: bool, stalls: int) -> None:
    if exempt and ghost:
        report.ghosts += 1
    elif exempt:
        report.recovered += 1
        report.exempted += 1
        name_some(report.exempted_jobs, [job])
        name_some(report.recovered_jobs, [job])
    elif stalls + 1 >= report.max_stalled:
        report.dead += 1
        name_some(report.dead_jobs, [job])
    else:
        report.recovered += 1
        report.forced += forced
        name_some(report.recovered_jobs, [job])


def _due(server: Server, active: str, now_ms: int) -> Iterator[dict[str, int]]:
    seen = 0
    while True:
        flat = server.read("ZRANGEBYSCORE", active, "-inf", now_ms, "WITHSCORES", "LIMIT", seen, PAGE)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        yield {member.decode("ascii"): score_ms(score) for member, score in pairs if is_valid(member)}
        seen += len(flat) // 2
        if len(flat) < 2 * PAGE:
            return


def _scene(
    server: Server, sight: QueueState, policy: StalledPolicy, ledger: Ledger | None, windows: Sequence[Window]
) -> JudgingContext:
    if ledger is None:
        contact, newest = None, None
    else:
        with ledger.read() as connection:
            contact = cuts.contact_of(connection, sight.queue)
            newest = cuts.latest(connection, sight.queue)
    cut = compare(contact, sight, loaded=contact is None and restored(server, sight.queue))
    if cut is not None:
        found, leases = describe(server, sight, contact, cut, policy.lease_ms)
        census = {lease.job: lease for lease in leases}
        proves = contact is None or contact.run_id != sight.run_id
        if ledger is None:
            begun = [w for w in windows if w.covers(sight.queue) and w.start_ms <= sight.now_ms]
            return JudgingContext(sight.run_id, begun, found, proves, census, policy.lease_ms)
        with ledger.read() as connection:
            scene = judging_context(connection, sight, contact, found, policy.lease_ms, windows)
        return scene if scene.interruption is None else replace(scene, epoch_proves=proves, census=census)
    if ledger is None:
        return JudgingContext(sight.run_id, [w for w in windows if w.covers(sight.queue)], lease_ms=policy.lease_ms)
    with ledger.read() as connection:
        return judging_context(connection, sight, contact, newest, policy.lease_ms, windows)


def _with_census(ledger: Ledger | None, scene: JudgingContext, lease: Lease) -> JudgingContext:
    cut = scene.interruption
    if ledger is None or cut is None or cut.id == 0 or cut.census_ms is None:
        return scene
    with ledger.read() as connection:
        return replace(scene, census=cuts.census_of(connection, cut.id, [lease.job]))
