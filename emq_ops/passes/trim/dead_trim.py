"""The dead trim of one queue: what the policy lets go is archived, if it says so, and then deleted."""

from __future__ import annotations

import contextvars
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from emq_ops.ledger import holds, runs
from emq_ops.ledger import interruptions as cuts
from emq_ops.ledger.alerts import Alert
from emq_ops.ledger.interruptions import Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.victims import Listing, Victim, close_trimmed, note, up_to
from emq_ops.ledger.victims import victims as find_victims
from emq_ops.passes.acts.flow_records import FlowRecords, digests_of, keep_flow_records
from emq_ops.passes.acts.snapshots import facts_and_fingerprints, renew_snapshots
from emq_ops.passes.events import Emit, PassEnded, PassStarted, SliceTrimmed, alert, nowhere
from emq_ops.passes.frame.budget import Budget, at_the_end
from emq_ops.passes.lease.holder import DAEMON, who
from emq_ops.passes.observe.interruptions import notice
from emq_ops.passes.observe.queue_state import QueueState, observe
from emq_ops.passes.observe.reconcile import agreed, reconcile
from emq_ops.passes.report import NAMED, TrimReport, name_some
from emq_ops.passes.trim.archiver import ArchivedJob, DeadArchiver
from emq_ops.policy.models import DeadPolicy
from emq_ops.policy.rows import as_row
from emq_ops.protocol.errors import BadInputError, EmqError, OutcomeUnknownError, ReconnectedError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.ids import min_id
from emq_ops.protocol.keyspace import Keys
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

ARCHIVE_PAGE = 10_000
"""Victims handed to the archive at a time."""
FLUSH = 4
"""Slices sent at once. The server does them one after the other; between flushes it serves others first."""
_LIVES = 3
_LEASE_MS = 30_000
_REASONS = {
    "held": "held: a worker's lock stands on it",
    "child": "flow child: its parent would wait for ever",
    "parent": "flow parent with open children",
    "damaged": "its row, logs or books are of another type",
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
    done: int = 0  # victims whose turn came, in order
    stay: set[str] = field(default_factory=set)  # of those, who were not removed
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
    Raises what `check_policy` raises, FenceError, DamagedError, UnreachableError, DatabaseError, and what the archive
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
    sight = observe(server, queue)
    report = TrimReport(queue, token=fence.token, keep=policy.keep, max_age_ms=policy.max_age_ms)
    with ledger.read() as connection:
        hold = holds.hold_of(connection, queue, sight.now_ms)
    if hold is not None:
        report.status, report.held_until_ms = "held", hold.until_ms
        report.notes.append(f"held by {hold.holder}")
        return report
    newest = notice(server, ledger, sight, lease_ms, emit)
    with ledger.read() as connection:
        known = agreed(cuts.contact_of(connection, queue), sight)
    victims = plan_victims(ledger, queue, policy, sight.now_ms, only) if known else None
    if trigger == DAEMON and victims == []:
        report.dead_before = report.left = sight.dead
        return report  # the daemon counts its idle passes together
    run = report.run = runs.start(
        ledger, "trim", queue, holder=who(), trigger=trigger, token=fence.token, policy=as_row(policy)
    )
    emit(PassStarted(queue, run, kind="trim", token=fence.token))
    state = _Trim(server, ledger, fence, policy, archiver, emit, report, run)
    try:
        _work(state, sight, newest, victims, only)
    except EmqError as fault:
        told = str(fault)
        at_the_end(lambda: runs.fail(ledger, run, told, report.counts()))
        emit(PassEnded(queue, run, kind="trim", status=runs.FAILED, counts=report.counts(), error=told))
        raise
    status = runs.STOPPED if report.status == "stopped" else runs.DONE
    emit(PassEnded(queue, run, kind="trim", status=status, counts=report.counts()))
    return report


def plan_victims(
    ledger: Ledger, queue: str, policy: DeadPolicy, now_ms: int, only: Collection[str] | None = None
) -> list[Victim]:
    """Whom the policy lets go, oldest first, by what the ledger knows of the dead set. Changes nothing."""
    by_mint = policy.age_by == "minted"
    oldest = None if policy.max_age_ms is None else now_ms - policy.max_age_ms
    with ledger.read() as connection:
        found = find_victims(
            connection,
            queue,
            keep=policy.keep,
            seen_before_ms=oldest,
            minted_before=None if oldest is None else min_id("JOB", oldest),
            by_mint=by_mint,
        )
    return found if only is None else [victim for victim in found if victim.job in only]


def _work(
    state: _Trim,
    sight: QueueState,
    newest: Interruption | None,
    victims: list[Victim] | None,
    only: Collection[str] | None,
) -> None:
    report = state.report
    report.dead_before = sight.dead
    whole = victims is not None
    if victims is None:
        whole = _bring_in_line(state, sight, newest)
        # By halves known, the oldest can't be told.
        victims = plan_victims(state.ledger, report.queue, state.policy, sight.now_ms, only) if whole else []
        report.more = not whole
    report.victims = len(victims)
    name_some(report.victim_jobs, [victim.job for victim in victims])
    most = state.policy.max_removals
    if most is not None and len(victims) > most:
        _stop(state, len(victims), most, sight.now_ms)
        victims = []
    elif victims:
        with state.ledger.write() as connection:
            note(connection, _listing(state, victims))
        _remove(state, victims, sight.now_ms)
    _close(state, sight, victims, whole=whole, gaps=only is not None)


def _bring_in_line(state: _Trim, sight: QueueState, newest: Interruption | None) -> bool:
    """Whether the ledger knows the whole dead set now."""
    agreement = reconcile(
        state.server, state.ledger, state.fence, state.run, sight.now_ms, newest, state.emit, state.budget
    )
    report = state.report
    report.found_dead, report.malformed = agreement.new, len(agreement.malformed)
    if agreement.malformed:
        report.notes.append(f"{len(agreement.malformed)} members of the dead set are no job ids; they are left alone")
    return agreement.whole


def _listing(state: _Trim, victims: Sequence[Victim]) -> Listing:
    return up_to(state.report.queue, state.run, victims[-1], by_mint=state.policy.age_by == "minted")


def _remove(state: _Trim, victims: Sequence[Victim], now_ms: int) -> None:
    """Removes the victims, with an archive page by page: the next page is archived while one that is proven goes."""
    if state.archiver is None:
        if state.budget.up:
            state.report.more = True
        else:
            _delete(state, victims, None, keep_flow_records(state.server, state.ledger, state.keys, victims))
        return
    going: Future[None] | None = None
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="trim") as behind:  # leaving it waits for what is going
        try:
            for first in range(0, len(victims), ARCHIVE_PAGE):
                if state.budget.up:
                    state.report.more = True
                    break
                some = victims[first : first + ARCHIVE_PAGE]
                proven, books = _archive(state, state.archiver, some, now_ms, going)
                carried = contextvars.copy_context()  # with the caller's deadline
                going = behind.submit(carried.run, _delete, state, some, proven, books)
            if going is not None:
                going.result()
        except EmqError as fault:
            other = going.exception() if going is not None else None
            if isinstance(other, EmqError) and other is not fault:
                fault.what += f"; and, while that was tried, {other}"
            raise


def _archive(
    state: _Trim, archiver: DeadArchiver, victims: Sequence[Victim], now_ms: int, going: Future[None] | None
) -> tuple[Mapping[str, ArchivedJob], Mapping[str, FlowRecords]]:
    """Those that are proven to be in the archive, and the books of flow parents; both are in the ledger too. The report
    is left alone until those that are `going` have gone."""
    books = keep_flow_records(state.server, state.ledger, state.keys, victims)
    jobs = [victim.job for victim in victims]
    facts, fingerprints = facts_and_fingerprints(state.ledger, state.report.queue, jobs)
    for job, kept in books.items():
        facts[job] = [*facts.get(job, ()), *kept.facts]
    receipt = archiver.archive(jobs, facts, now_ms=now_ms)
    if going is not None:
        going.result()
    state.report.archived += receipt.folded
    for job, reason in receipt.failed.items():
        state.report.skip(job, f"not archived: {reason}")
    state.report.survived += len(receipt.gone)
    flat = {job: archived for job, archived in receipt.proven.items() if job not in books}
    renew_snapshots(state.server, state.ledger, state.keys, flat, fingerprints)
    return receipt.proven, books


def _delete(
    state: _Trim,
    victims: Sequence[Victim],
    proven: Mapping[str, ArchivedJob] | None,
    books: Mapping[str, FlowRecords],
) -> None:
    size = state.policy.slice
    for first in range(0, len(victims), size * FLUSH):
        if state.budget.up:
            state.report.more = True
            return
        stop = min(first + size * FLUSH, len(victims))
        _flush(state, [victims[at : min(at + size, stop)] for at in range(first, stop, size)], proven, books)


def _flush(
    state: _Trim,
    slices: list[Sequence[Victim]],
    proven: Mapping[str, ArchivedJob] | None,
    books: Mapping[str, FlowRecords],
) -> None:
    """Sends some slices at once, and takes their replies in turn up to the first that failed, which is raised."""
    keys, report = state.keys, state.report
    calls: list[tuple[list[str], list[Arg]]] = []
    for some in slices:
        going = some if proven is None else [victim for victim in some if victim.job in proven]
        args = [*state.fence.args, keys.base, *call_tail(going, proven, books)]
        calls.append(([state.fence.key, keys.dead, keys.exempt], args))
    for some, reply in zip(slices, state.server.run_many(load("dead_trim"), calls), strict=True):
        if isinstance(reply, EmqError):
            raise reply
        count, stay = reply
        note_stay(report, stay)
        left = {job.decode("ascii") for job in stay[::2]}
        if proven is not None:
            left.update(victim.job for victim in some if victim.job not in proven)
        state.stay |= left
        state.done += len(some)
        report.removed += int(count)
        if len(report.removed_jobs) < NAMED:
            name_some(report.removed_jobs, [victim.job for victim in some if victim.job not in left])
        state.emit(SliceTrimmed(report.queue, state.run, removed=int(count), skipped=len(left)))


def call_tail(
    victims: Sequence[Victim], proven: Mapping[str, ArchivedJob] | None, books: Mapping[str, FlowRecords] | None
) -> list[Arg]:
    """The jobs as ``lua/lib/dead_trim.lua`` takes them; without `proven` there is no digest to compare, without `books`
    none of these."""
    flows = any(victim.flow for victim in victims)
    ends: list[list[Arg]] = [[digest] for digest in digests_of(victims, books)] if flows else [[] for _ in victims]
    shapes: dict[tuple[bytes, ...], int] = {}
    jobs: list[Arg] = []
    for victim, end in zip(victims, ends, strict=True):
        jobs += victim[:3]
        if proven is not None:
            archived = proven[victim.job]
            jobs += [shapes.setdefault(archived.names, len(shapes) + 1), archived.digest]
        jobs += end
    head: list[Arg] = ["flow" if flows else "flat", len(shapes)]
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


def _close(state: _Trim, sight: QueueState, victims: Sequence[Victim], *, whole: bool, gaps: bool) -> None:
    report, done = state.report, victims[: state.done]
    after = observe(state.server, report.queue)
    report.left = after.dead
    values: dict[str, int] = {"seen_ms": after.now_ms, "completed": after.completed, "failed": after.failed}
    # A victim that was no longer dead means that others are at work: then the next pass looks again.
    quiet = (after.dead, after.failed) == (sight.dead - report.removed, sight.failed) and not report.survived
    values |= {"agreed_dead": after.dead, "agreed_failed": after.failed} if whole and quiet else {"agreed_dead": -1}
    with state.ledger.write() as connection:
        if done:
            removed = [victim.job for victim in done if victim.job not in state.stay]
            close_trimmed(connection, _listing(state, done), removed, state.stay, after.now_ms, gaps=gaps)
        cuts.update_contact(connection, report.queue, (after.run_id, after.replid), **values)
        status = runs.STOPPED if report.status == "stopped" else runs.DONE
        runs.finish(connection, state.run, status, counts=report.counts())
