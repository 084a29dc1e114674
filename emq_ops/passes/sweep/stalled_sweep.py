"""The stalled sweep of one queue: lapsed leases go back to wait, or die when they stalled too often."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from emq_ops.ledger import holds, runs
from emq_ops.ledger import interruptions as book
from emq_ops.ledger.alerts import Alert
from emq_ops.ledger.holds import Window
from emq_ops.ledger.interruptions import Contact, Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Died, Emit, PassEnded, PassStarted, SliceSwept, alert, nowhere
from emq_ops.passes.frame.budget import Budget, at_the_end
from emq_ops.passes.lease.holder import DAEMON, who
from emq_ops.passes.observe.competitors import check as check_competitors
from emq_ops.passes.observe.evidence import JudgingContext, Lease
from emq_ops.passes.observe.interruptions import judging_context, notice
from emq_ops.passes.observe.queue_state import QueueState, observe
from emq_ops.passes.observe.reconcile import agreed, reconcile
from emq_ops.passes.observe.rows import token_of
from emq_ops.passes.report import SweepReport, name_some
from emq_ops.passes.sweep.guard import bound, would_die
from emq_ops.passes.sweep.slices import (
    BURST,
    UNRECORDED,
    Slice,
    Tally,
    judge_all,
    native_slice,
    record_slice,
    run_slice,
)
from emq_ops.policy.models import StalledPolicy
from emq_ops.policy.rows import as_row
from emq_ops.protocol.errors import EmqError, OutcomeUnknownError, ReconnectedError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

BURST_LEASES = 10
"""So many counted stalls in one pass are a burst: a worker host went away."""
_LIVES = 3
_EMPTY_SLICES = 3
_TIDY_PAGE = 500
_SEEN_EVERY_MS = 10_000


@dataclass(slots=True)
class _Sweep:
    """One pass under way."""

    server: Server
    ledger: Ledger
    fence: Fence
    policy: StalledPolicy
    windows: Sequence[Window]
    emit: Emit
    sight: QueueState
    scene: JudgingContext
    report: SweepReport
    budget: Budget = field(default_factory=Budget)
    run: str = ""
    number: int = 0
    recorded: tuple[str, int] | None = None
    ours: list[str] = field(default_factory=list)

    @property
    def judged(self) -> bool:
        """Whether leases must be judged before the slice: something may exempt one of them."""
        return self.policy.restart == "exempt" and (bool(self.scene.windows) or self.scene.interruption is not None)


def sweep(
    server: Server,
    queue: str,
    policy: StalledPolicy,
    ledger: Ledger,
    fence: Fence,
    *,
    windows: Sequence[Window] = (),
    trigger: str = "command",
    emit: Emit = nowhere,
) -> SweepReport:
    """Sweeps until nothing is due, or until the caller's deadline (``with deadline(seconds)``).

    `fence`: the queue's lease; `windows`: maintenance windows of the config, beside those of the ledger. What an
    earlier pass did and could not record is recorded first. Facts and slices are of one life of the server: where the
    connection ends in between, the pass begins again. Raises FenceError (the lease is lost; nothing more was written),
    DamagedError, UnreachableError, DatabaseError.
    """
    for life in range(_LIVES):
        try:
            with server.session(queue) as session:
                return _pass(session, queue, policy, ledger, fence, windows, trigger, emit)
        except (ReconnectedError, OutcomeUnknownError):
            # A slice whose reply was lost stands on the server until it is recorded.
            if life == _LIVES - 1:
                raise
    raise AssertionError("unreachable")


def _pass(
    server: Server,
    queue: str,
    policy: StalledPolicy,
    ledger: Ledger,
    fence: Fence,
    windows: Sequence[Window],
    trigger: str,
    emit: Emit,
) -> SweepReport:
    sight = observe(server, queue)
    report = SweepReport(queue, token=fence.token, max_stalled=policy.max_stalled, restart=policy.restart)
    with ledger.read() as connection:
        hold = holds.hold_of(connection, queue, sight.now_ms)
    if hold is not None:
        report.status, report.held_until_ms = "held", hold.until_ms
        report.notes.append(f"held by {hold.holder}")
        return report
    newest = notice(server, ledger, sight, policy.lease_ms, emit)
    with ledger.read() as connection:
        contact = book.contact_of(connection, queue)
        scene = judging_context(connection, sight, contact, newest, policy.lease_ms, windows)
    report.interruption = scene.interruption.id if scene.interruption is not None else None
    state = _Sweep(server, ledger, fence, policy, windows, emit, sight, scene, report)
    if trigger == DAEMON and sight.due == 0 and not sight.unrecorded and agreed(contact, sight):
        _close(state, contact, run=None)  # the daemon counts its idle passes together
        return report
    state.run = report.run = runs.start(
        ledger, "sweep", queue, holder=who(), trigger=trigger, token=fence.token, policy=as_row(policy)
    )
    emit(PassStarted(queue, state.run, kind="sweep", token=fence.token))
    try:
        _work(state, contact, newest)
    except EmqError as fault:
        told = str(fault)
        at_the_end(lambda: runs.fail(ledger, state.run, told))
        emit(PassEnded(queue, state.run, kind="sweep", status=runs.FAILED, counts=report.counts(), error=told))
        raise
    status = runs.STOPPED if report.status == "stopped" else runs.DONE
    emit(PassEnded(queue, state.run, kind="sweep", status=status, counts=report.counts()))
    return report


def _work(state: _Sweep, contact: Contact | None, newest: Interruption | None) -> None:
    most = bound(state.policy, state.sight.active)
    if most is not None and state.sight.due:
        dying = would_die(
            state.server,
            state.ledger,
            state.report.queue,
            state.policy,
            state.scene,
            state.sight.now_ms,
            judged=state.judged,
        )
        if dying > most:
            _stop(state, dying, most)
    if state.report.status != "stopped":
        _slices(state, most)
    after = observe(state.server, state.report.queue)
    if state.budget.up:
        whole = False
    elif not agreed(contact, after, state.report.dead) or state.report.replayed:
        agreement = reconcile(state.server, state.ledger, state.fence, state.run, after.now_ms, newest, state.emit)
        state.report.found_dead = agreement.new
        if agreement.malformed:
            state.report.notes.append(f"{len(agreement.malformed)} members of the dead set are no job ids")
        whole = agreement.whole
    else:
        whole = True
    _warn_of_burst(state, after.now_ms)
    _tidy(state)
    _close(state, contact, run=state.run, after=after, whole=whole)


def _slices(state: _Sweep, most: int | None) -> None:
    now, empty = state.sight.now_ms, 0
    while True:
        if state.budget.up:
            state.report.more = True
            return
        listed = _judge_due(state, now) if state.judged else None
        left = None if most is None else most - state.report.dead
        done = _one_slice(state, listed, left)
        now = done.at_ms if done.verdict != BURST else now
        if done.verdict == BURST:
            _stop(state, state.report.dead + done.deaths, most or 0)
            return
        if not done.settled:
            empty += 1
            if not listed or empty >= _EMPTY_SLICES:
                return  # nothing is due, and what was recorded is acknowledged
            continue
        empty = 0
        tally = record_slice(state.ledger, state.server, state.fence, state.scene, done)
        state.recorded = done.key
        _add(state, done, tally)


def _one_slice(state: _Sweep, listed: list[tuple[str, bytes, bytes, bool]] | None, left: int | None) -> Slice:
    call = native_slice if state.policy.executor == "native" else run_slice
    done = call(
        state.server,
        state.fence,
        state.policy,
        state.run,
        state.number + 1,
        recorded=state.recorded,
        most_deaths=left,
        listed=listed,
    )
    if done.key == (state.run, state.number + 1):
        state.number += 1
    return done


def _judge_due(state: _Sweep, now_ms: int) -> list[tuple[str, bytes, bytes, bool]]:
    """The leases due, each with its score, attempts and whether it is exempt, as the slice will check them again."""
    keys = state.fence.keys
    flat = state.server.read("ZRANGEBYSCORE", keys.active, "-inf", now_ms, "WITHSCORES", "LIMIT", 0, state.policy.limit)
    members, scores = flat[::2], flat[1::2]
    jobs = [m.decode("utf-8", "backslashreplace") for m in members]
    rows = state.server.read_many([("HMGET", keys.row_of_member(j), "attempts", "lease_epoch") for j in jobs])
    leases = [
        Lease(
            job,
            score_ms(score),
            token_of(row[0]),
            (row[1] or b"").decode("utf-8", "replace"),
        )
        for job, score, row in zip(jobs, scores, rows, strict=True)
    ]
    with state.ledger.read() as connection:
        verdicts = judge_all(connection, state.scene, leases)
    return [
        (job, score, row[0] or b"", verdicts[job].exempt) for job, score, row in zip(jobs, scores, rows, strict=True)
    ]


def _add(state: _Sweep, done: Slice, tally: Tally) -> None:
    report = state.report
    state.ours += [one.lease.job for one in done.settled]
    if done.verdict == UNRECORDED:
        report.replayed += 1
        return
    report.slices += 1
    report.recovered += len(tally.recovered)
    report.exempted += len(tally.exempted)
    report.forced += len(tally.forced)
    report.dead += len(tally.dead)
    report.ghosts += len(tally.ghosts)
    name_some(report.recovered_jobs, tally.recovered)
    name_some(report.exempted_jobs, tally.exempted)
    name_some(report.dead_jobs, [death.job for death in tally.dead])
    state.emit(
        SliceSwept(
            report.queue,
            state.run,
            recovered=len(tally.recovered),
            exempted=len(tally.exempted),
            dead=len(tally.dead),
            ghosts=len(tally.ghosts),
        )
    )
    for d in tally.dead:
        died = Died(report.queue, state.run, job=d.job, cause=d.cause, attempts=d.attempts, stalls=d.stalls)
        state.emit(dataclasses.replace(died, killed_by=done.run))


def _stop(state: _Sweep, dying: int, most: int) -> None:
    report = state.report
    report.status, report.stopped_by = "stopped", "max_share" if state.policy.max_removals is None else "max_removals"
    text = f"{dying} jobs would be dead-lettered, more than the {most} allowed in one pass: nothing was buried"
    report.notes.append(text)
    facts = {"would_die": dying, "allowed": most, "active": state.sight.active, "due": state.sight.due}
    raised = Alert(report.queue, "burst_stopped", text, state.sight.now_ms, facts, state.run)
    alert(state.ledger, state.emit, raised)


def _warn_of_burst(state: _Sweep, now_ms: int) -> None:
    report = state.report
    counted = report.recovered - report.exempted + report.dead
    if counted >= BURST_LEASES:
        text = f"{counted} leases lapsed at once and were counted: a worker host may have gone away"
        facts = {"leases": counted, "dead": report.dead, "jobs": report.dead_jobs[:20] or report.recovered_jobs[:20]}
        alert(state.ledger, state.emit, Alert(report.queue, "burst", text, now_ms, facts, state.run))


def _tidy(state: _Sweep) -> None:
    """Forgets the exemptions of jobs that are gone."""
    keys, cursor = state.fence.keys, b"0"
    while True:
        cursor, flat = state.server.read("HSCAN", keys.exempt, cursor, "COUNT", _TIDY_PAGE)
        for first in range(0, len(flat), 2 * _TIDY_PAGE):  # a small hash comes whole, whatever COUNT says
            args = [*state.fence.args, keys.base, *flat[first : first + 2 * _TIDY_PAGE : 2]]
            state.server.run(load("exempt_tidy"), [state.fence.key, keys.exempt], args)
        if cursor == b"0":
            return


def _close(
    state: _Sweep, contact: Contact | None, *, run: str | None, after: QueueState | None = None, whole: bool = True
) -> None:
    """Looks for competitors, and stores how things stand now that the pass ends."""
    report, seen = state.report, after or state.sight
    report.competitors = check_competitors(
        state.server, state.ledger, report.queue, seen.now_ms, state.ours, run, state.emit
    )
    values: dict[str, int] = {"seen_ms": seen.now_ms, "completed": seen.completed, "failed": seen.failed}
    if not report.more and report.status == "done":
        values["swept_ms"] = state.sight.now_ms
    if after is not None and whole:
        values |= {"agreed_dead": seen.dead, "agreed_failed": seen.failed}
    if run is None and contact is not None and seen.now_ms - contact.seen_ms < _SEEN_EVERY_MS:
        return  # nothing new, and said not long ago
    with state.ledger.write() as connection:
        book.update_contact(connection, report.queue, (seen.run_id, seen.replid), **values)
        if run is not None:
            status = runs.STOPPED if report.status == "stopped" else runs.DONE
            runs.finish(connection, run, status, counts=report.counts())
