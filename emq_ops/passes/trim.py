"""The dead trim of one queue: what the policy lets go is archived, if it says so, and then deleted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from emq_archive.model import Pair
from emq_ops.ledger import deaths as book
from emq_ops.ledger import holds, runs
from emq_ops.ledger import interruptions as cuts
from emq_ops.ledger.alerts import Alert
from emq_ops.ledger.deaths import Recorded, Victim
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.archiver import ArchivedJob, DeadArchiver
from emq_ops.passes.budget import Budget, at_the_end
from emq_ops.passes.events import Emit, PassEnded, PassStarted, SliceTrimmed, alert, nowhere
from emq_ops.passes.holder import DAEMON, who
from emq_ops.passes.interruptions import notice
from emq_ops.passes.policy import DeadPolicy, as_row
from emq_ops.passes.reconcile import Agreement, agreed, reconcile
from emq_ops.passes.report import TrimReport, name_some
from emq_ops.passes.sight import Sight, look
from emq_ops.protocol.errors import BadInputError, EmqError, OutcomeUnknownError, ReconnectedError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.ids import min_id
from emq_ops.protocol.keyspace import Keys
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

ARCHIVE_PAGE = 2_000
"""Victims handed to the archive at a time."""
_LIVES = 3
_LEASE_MS = 30_000
_REASONS = {
    "held": "held: a worker's lock stands on it",
    "child": "flow child: its parent would wait for ever",
    "parent": "flow parent with open children",
    "damaged": "its row or logs are of another type",
}


class ProtectedError(EmqError):
    """The queue is protected: no destructive verb runs on it."""


@dataclass(slots=True)
class _Trim:
    """One pass under way."""

    server: Server
    ledger: Ledger
    fence: Fence
    policy: DeadPolicy
    archiver: DeadArchiver | None
    emit: Emit
    report: TrimReport
    run: str
    gone: set[str] = field(default_factory=set)
    budget: Budget = field(default_factory=Budget)

    @property
    def keys(self) -> Keys:
        return self.fence.keys


def check_policy(queue: str, policy: DeadPolicy, *, archived: bool) -> None:
    """Refuses what must not run: a protected queue (ProtectedError), no bound at all (BadInputError), an archive that
    is wanted and not there (EmqError; `archived`: it is)."""
    if policy.protect:
        raise ProtectedError("protected: nothing is removed from it", where=queue, fix="set protect: false first")
    if policy.keep is None and policy.max_age_ms is None:
        raise BadInputError("a trim needs keep or max_age", where=queue, fix="say how many or how old may stay")
    if policy.archive and not archived:
        raise EmqError(
            "archive: true, and there is no archive: nothing is trimmed",
            where=queue,
            fix="configure the archive, or set archive: false",
        )


def trim(
    server: Server,
    queue: str,
    policy: DeadPolicy,
    ledger: Ledger,
    fence: Fence,
    *,
    archiver: DeadArchiver | None = None,
    only: Collection[str] | None = None,
    lease_ms: int = _LEASE_MS,
    trigger: str = "command",
    emit: Emit = nowhere,
) -> TrimReport:
    """Trims until the policy is met, or until the caller's deadline (``with deadline(seconds)``).

    `fence`: the queue's lease; `archiver`: where dead jobs go with ``archive: true``; `only`: ids that bound this pass
    (it may remove fewer, never others); `lease_ms`: the queue's longest lease, for the census of an interruption.
    Raises what `check_policy` raises, FenceError, DamagedError, UnreachableError, LedgerError, and what the archive
    raises.
    """
    check_policy(queue, policy, archived=archiver is not None)
    for life in range(_LIVES):
        try:
            with server.session(queue) as session:
                return _pass(session, ledger, fence, policy, archiver, only, lease_ms, trigger, emit)
        except (ReconnectedError, OutcomeUnknownError):
            # What the lost call deleted is known by the list that the ledger has of this run.
            if life == _LIVES - 1:
                raise
    raise AssertionError("unreachable")


def _pass(
    server: Server,
    ledger: Ledger,
    fence: Fence,
    policy: DeadPolicy,
    archiver: DeadArchiver | None,
    only: Collection[str] | None,
    lease_ms: int,
    trigger: str,
    emit: Emit,
) -> TrimReport:
    queue = fence.keys.queue
    sight = look(server, queue)
    report = TrimReport(queue, token=fence.token, keep=policy.keep, max_age_ms=policy.max_age_ms)
    with ledger.read() as connection:
        hold = holds.hold_of(connection, queue, sight.now_ms)
    if hold is not None:
        report.status, report.held_until_ms = "held", hold.until_ms
        report.notes.append(f"held by {hold.holder}")
        return report
    newest = notice(server, ledger, sight, lease_ms, emit)
    if trigger == DAEMON and _nothing_to_do(ledger, policy, sight, only):
        report.dead_before = report.left = sight.dead
        return report
    run = report.run = runs.start(
        ledger, "trim", queue, holder=who(), trigger=trigger, token=fence.token, policy=as_row(policy)
    )
    emit(PassStarted(queue, run, kind="trim", token=fence.token))
    state = _Trim(server, ledger, fence, policy, archiver, emit, report, run)
    try:
        agreement = reconcile(server, ledger, fence, run, sight.now_ms, newest, emit, state.budget)
        _work(state, agreement, sight, only)
    except EmqError as fault:
        told = str(fault)
        at_the_end(lambda: runs.fail(ledger, run, told, report.counts()))
        emit(PassEnded(queue, run, kind="trim", status=runs.FAILED, counts=report.counts(), error=told))
        raise
    status = runs.STOPPED if report.status == "stopped" else runs.DONE
    emit(PassEnded(queue, run, kind="trim", status=status, counts=report.counts()))
    return report


def _nothing_to_do(ledger: Ledger, policy: DeadPolicy, sight: Sight, only: Collection[str] | None) -> bool:
    """Whether the dead set is as the ledger knows it and the policy lets nobody go. The daemon counts its idle passes
    together."""
    with ledger.read() as connection:
        contact = cuts.contact_of(connection, sight.queue)
    return agreed(contact, sight) and not plan_victims(ledger, sight.queue, policy, sight.now_ms, only)


def plan_victims(
    ledger: Ledger, queue: str, policy: DeadPolicy, now_ms: int, only: Collection[str] | None = None
) -> list[Victim]:
    """Whom the policy lets go, oldest first, by what the ledger knows of the dead set. Changes nothing."""
    by_mint = policy.age_by == "minted"
    oldest = None if policy.max_age_ms is None else now_ms - policy.max_age_ms
    with ledger.read() as connection:
        found = book.victims(
            connection,
            queue,
            keep=policy.keep,
            seen_before_ms=oldest,
            minted_before=None if oldest is None else min_id("JOB", oldest),
            by_mint=by_mint,
        )
    return found if only is None else [victim for victim in found if victim.job in only]


def _work(state: _Trim, agreement: Agreement, sight: Sight, only: Collection[str] | None) -> None:
    report = state.report
    report.found_dead, report.dead_before, report.malformed = agreement.new, agreement.dead, len(agreement.malformed)
    if agreement.malformed:
        report.notes.append(f"{len(agreement.malformed)} members of the dead set are no job ids; they are left alone")
    report.more = not agreement.whole
    victims = plan_victims(state.ledger, report.queue, state.policy, sight.now_ms, only) if agreement.whole else []
    report.victims = len(victims)
    name_some(report.victim_jobs, [victim.job for victim in victims])
    most = state.policy.max_removals
    if most is not None and len(victims) > most:
        _stop(state, len(victims), most, sight.now_ms)
    elif victims:
        with state.ledger.write() as connection:
            # Whom we are about to remove: should we die, the next pass knows whose work it was.
            book.unlist(connection, report.queue)
            book.list_victims(connection, report.queue, [victim.job for victim in victims], state.run)
        _remove(state, victims, sight.now_ms)
    _close(state, agreement, sight, victims)


def _remove(state: _Trim, victims: Sequence[Victim], now_ms: int) -> None:
    page = ARCHIVE_PAGE if state.archiver is not None else len(victims)
    for first in range(0, len(victims), page):
        if state.budget.up:
            state.report.more = True
            return
        some = victims[first : first + page]
        proven: Mapping[str, ArchivedJob] | None = None
        if state.archiver is not None:
            receipt = state.archiver.archive([v.job for v in some], _facts(state, some), now_ms=now_ms)
            proven = receipt.proven
            state.report.archived += receipt.folded
            for job, reason in receipt.failed.items():
                state.report.skip(job, f"not archived: {reason}")
            state.report.survived += len(receipt.gone)
            some = [victim for victim in some if victim.job in proven]
        _delete(state, some, proven)


def _facts(state: _Trim, victims: Sequence[Victim]) -> dict[str, list[Pair]]:
    """What goes into the archive of each death besides row and logs."""
    facts: dict[str, list[Pair]] = {}
    with state.ledger.read() as connection:
        for death in book.open_deaths(connection, state.report.queue, [victim.job for victim in victims]):
            facts[death.job] = _told(death)
    return facts


def _told(death: Recorded) -> list[Pair]:
    words = {
        "seen_at": death.first_seen_ms,
        "cause": death.cause,
        "killed_by": death.killed_by,
        "deadline": death.deadline_ms,
        "evidence": death.evidence,
        "interruption": death.interruption,
    }
    return [(name.encode("ascii"), str(v).encode("utf-8")) for name, v in words.items() if v is not None]


def _delete(state: _Trim, victims: Sequence[Victim], proven: Mapping[str, ArchivedJob] | None) -> None:
    keys, report = state.keys, state.report
    for first in range(0, len(victims), state.policy.slice):
        if state.budget.up:
            report.more = True
            return
        some = victims[first : first + state.policy.slice]
        args = [*state.fence.args, keys.base, *call_tail(some, proven)]
        count, stay = state.server.run(load("dead_trim"), [state.fence.key, keys.dead, keys.exempt], args)
        note_stay(report, stay)
        left = {job.decode("ascii") for job in stay[::2]}
        removed = [victim.job for victim in some if victim.job not in left]
        state.gone.update(removed)
        report.removed += int(count)
        name_some(report.removed_jobs, removed)
        state.emit(SliceTrimmed(report.queue, state.run, removed=len(removed), skipped=len(left)))


def call_tail(victims: Sequence[Victim], proven: Mapping[str, ArchivedJob] | None) -> list[Arg]:
    """The jobs as ``lua/lib/dead_trim.lua`` takes them; without `proven` there is no digest to compare."""
    shapes: dict[tuple[bytes, ...], int] = {}
    jobs: list[Arg] = []
    for victim in victims:
        shape, digest = 0, ""
        if proven is not None:
            archived = proven[victim.job]
            shape, digest = shapes.setdefault(archived.names, len(shapes) + 1), archived.digest
        jobs += [victim.job, victim.attempts, victim.stalls, shape, digest]
    head: list[Arg] = [len(shapes)]
    for names in shapes:
        head += [len(names), *names]
    return head + jobs


def note_stay(report: TrimReport, stay: Sequence[bytes]) -> None:
    """Adds to a report those that a slice left where they are."""
    for job, word in zip(stay[::2], stay[1::2], strict=True):
        reason = word.decode("ascii")
        if reason in _REASONS:
            report.skip(job.decode("ascii"), _REASONS[reason])
        else:
            report.survived += 1  # gone, or dead again since it was listed


def _stop(state: _Trim, victims: int, most: int, now_ms: int) -> None:
    report = state.report
    report.status, report.stopped_by = "stopped", "max_removals"
    text = f"{victims} jobs would be removed, more than the {most} allowed in one pass: nothing was removed"
    report.notes.append(text)
    facts = {"victims": victims, "allowed": most}
    alert(state.ledger, state.emit, Alert(report.queue, "removals_stopped", text, now_ms, facts, state.run))


def _close(state: _Trim, agreement: Agreement, sight: Sight, victims: Sequence[Victim]) -> None:
    report = state.report
    after = look(state.server, report.queue)
    report.left = after.dead
    values: dict[str, int] = {"seen_ms": after.now_ms, "completed": after.completed, "failed": after.failed}
    quiet = (after.dead, after.failed) == (sight.dead - report.removed, sight.failed)
    if agreement.whole and quiet:
        values |= {"agreed_dead": after.dead, "agreed_failed": after.failed}
    with state.ledger.write() as connection:
        book.unlist(connection, report.queue, [v.job for v in victims if v.job not in state.gone])
        book.close_listed(connection, report.queue, after.now_ms)
        cuts.save_contact(connection, report.queue, **values)
        status = runs.STOPPED if report.status == "stopped" else runs.DONE
        runs.finish(connection, state.run, status, counts=report.counts())
