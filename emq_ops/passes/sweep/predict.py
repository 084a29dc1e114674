"""What a sweep would do now: for plans and dry runs. Takes no lease and changes nothing, neither server nor ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from emq_ops.ledger import interruptions
from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.observe.evidence import JudgingContext, LapsedLease, judge
from emq_ops.passes.observe.interruptions import compare, describe, judging_context
from emq_ops.passes.observe.queue_state import QueueState, observe, restored
from emq_ops.passes.observe.rows import number_of, token_of
from emq_ops.passes.report import name_some
from emq_ops.passes.sweep.guard import bound
from emq_ops.passes.sweep.report import SweepReport
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.server import Server

_PAGE = 1000


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
    state = observe(server, queue)
    report = SweepReport(state.queue, status="dry", max_stalled=policy.max_stalled, restart=policy.restart)
    judging = _judging(server, state, policy, ledger, windows)
    exempting = policy.restart == "exempt"
    keys = keys_of(queue)
    for batch in _due(server, keys.active, state.now_ms):
        jobs = list(batch)
        rows = server.read_many([("HMGET", keys.row(j), "stalled", "attempts", "lease_epoch", "state") for j in jobs])
        spent = server.read_many([("HGET", keys.exempt, job) for job in jobs])
        for job, row, exemptions in zip(jobs, rows, spent, strict=True):
            lease = LapsedLease(job, batch[job], token_of(row[1]), (row[2] or b"").decode("utf-8", "replace"))
            exempt = exempting and judge(lease, _with_census(ledger, judging, lease)).exempt
            forced = exempt and number_of(exemptions, 0) >= policy.max_exempt
            ghost = all(value is None for value in row)
            _count(report, job, exempt=exempt and not forced, forced=forced, ghost=ghost, stalls=number_of(row[0], 0))
    most = bound(policy, state.active)
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
        flat = server.read("ZRANGEBYSCORE", active, "-inf", now_ms, "WITHSCORES", "LIMIT", seen, _PAGE)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        yield {member.decode("ascii"): score_ms(score) for member, score in pairs if is_valid(member)}
        seen += len(flat) // 2
        if len(flat) < 2 * _PAGE:
            return


def _judging(
    server: Server, state: QueueState, policy: StalledPolicy, ledger: Ledger | None, windows: Sequence[Window]
) -> JudgingContext:
    if ledger is None:
        contact, newest = None, None
    else:
        with ledger.read() as connection:
            contact = interruptions.contact_of(connection, state.queue)
            newest = interruptions.latest(connection, state.queue)
    if contact is not None and contact.run_id == state.run_id and state.token < contact.token:
        contact = replace(contact, went_back=True)  # as the run will find when it takes the lease
    cut = compare(contact, state, loaded=contact is None and restored(server, state.queue))
    if cut is not None:
        found, leases = describe(server, state, contact, cut, policy.lease_ms)
        census = {lease.job: lease for lease in leases}
        proves = contact is None or contact.run_id != state.run_id
        if ledger is None:
            begun = [w for w in windows if w.covers(state.queue) and w.start_ms <= state.now_ms]
            return JudgingContext(state.run_id, begun, found, proves, census, policy.lease_ms)
        with ledger.read() as connection:
            # A sweep's mark is of the earlier life then.
            before = None if contact is None else replace(contact, swept_ms=0)
            judging = judging_context(connection, state, before, found, policy.lease_ms, windows)
        return judging if judging.interruption is None else replace(judging, epoch_proves=proves, census=census)
    if ledger is None:
        return JudgingContext(state.run_id, [w for w in windows if w.covers(state.queue)], lease_ms=policy.lease_ms)
    with ledger.read() as connection:
        return judging_context(connection, state, contact, newest, policy.lease_ms, windows)


def _with_census(ledger: Ledger | None, judging: JudgingContext, lease: LapsedLease) -> JudgingContext:
    cut = judging.interruption
    if ledger is None or cut is None or cut.id == 0 or cut.census_ms is None:
        return judging
    with ledger.read() as connection:
        return replace(judging, census=interruptions.census_of(connection, cut.id, [lease.job]))
