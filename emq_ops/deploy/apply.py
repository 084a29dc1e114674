"""Doing a plan: the state lock, a journal, the writes one by one, then one revision in one transaction.

Killed anywhere, it leaves the journal; the next plan shows it and the next apply goes on from there, since a setting
that is as wanted is not written again. The lock is looked at in the transaction before each write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emq_ops.database.engine import Connection
from emq_ops.deploy import last_applied
from emq_ops.deploy.live_settings import read_settings
from emq_ops.deploy.model import Plan, Proposal, Step, Write
from emq_ops.deploy.render import as_json, value
from emq_ops.deploy.saved import StaleError, moved_steps, steps_of
from emq_ops.deploy.store import journal, revisions
from emq_ops.deploy.store.lock import LockLostError, StateLock
from emq_ops.deploy.store.revisions import Head
from emq_ops.deploy.writes import write
from emq_ops.ledger import bounds
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.passes.lease.holder import who
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.server import Server

MOST_AT_ONCE = 200
"""Settings that are written in one flush, and journalled in one transaction."""
Replan = Callable[[], Plan]
"""Makes the same plan anew, from the facts as they are now."""
Watch = Callable[[Step, str], None]
"""Told of each write: the step and ``begun``, ``written``, then ``done`` (recorded) or ``already`` (was so)."""


class PlanRefusedError(EmqError):
    """The plan must not be applied as it is."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply left: the new revision (None: nothing was to do), how many settings were written."""

    revision: int | None
    written: int


def check(plan: Plan, *, allow_loss: bool) -> None:
    """Raises PlanRefusedError for a plan that must not be applied."""
    if plan.refusals:
        first, *others = plan.refusals
        raise PlanRefusedError(first.what + (f" (and {len(others)} more)" if others else ""), fix=first.fix)
    if plan.losses and not allow_loss:
        more = f" (and {len(plan.losses) - 1} more)" if len(plan.losses) > 1 else ""
        raise PlanRefusedError(f"data could be lost: {plan.losses[0]}{more}", fix="--allow-loss, if that is meant")


def apply(
    server: Server,
    ledger: Ledger,
    proposal: Proposal,
    replan: Replan,
    *,
    allow_loss: bool = False,
    why: str = "",
    watch: Watch | None = None,
) -> Applied:
    """Does what was proposed. `replan` is asked once the lock is ours: where the facts moved since the plan was shown,
    nothing is done. `why`: a word for the history.

    Raises PlanRefusedError, StaleError, LockedError (somebody else applies), LockLostError, and what server and ledger
    raise.
    """
    shown = proposal.plan
    check(shown, allow_loss=allow_loss)
    lock = StateLock(ledger, shown.kind)
    lock.take()
    try:
        fresh = replan()
        _same(shown, fresh)
        check(fresh, allow_loss=allow_loss)
        work = _Applying(server, ledger, lock, replace(proposal, plan=fresh), watch or (lambda _step, _what: None))
        return work.run(why)
    except LockLostError:
        raise
    except BaseException:
        with contextlib.suppress(EmqError), ledger.write() as connection:  # the ledger itself may be the fault
            lock.give_up(connection)
        raise


def _same(shown: Plan, fresh: Plan) -> None:
    moved: list[str] = []
    if shown.base != fresh.base:
        moved.append(f"revision {fresh.base} is in force now")
    moved += moved_steps(steps_of(shown), steps_of(fresh))
    if moved:
        raise StaleError(moved)


def _flushes(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """The steps in portions: of a small plan one by one, so that it is told exactly where an apply ended."""
    size = max(1, min(MOST_AT_ONCE, len(steps) // 50))
    for first in range(0, len(steps), size):
        yield steps[first : first + size]


@dataclass(frozen=True, slots=True)
class _Applying:
    """An apply under its lock."""

    server: Server
    ledger: Ledger
    lock: StateLock
    proposal: Proposal
    watch: Watch

    def run(self, why: str) -> Applied:
        """The journal, the writes one by one, then the revision."""
        plan = self.proposal.plan
        if plan.empty:
            if plan.base is not None:  # an interrupted apply may have noted what never came into force
                last_applied.write(self.server, self.proposal.document, plan.notes, self.ledger.state, plan.base)
            with self._held() as connection:
                journal.repair(connection)  # whatever an interrupted apply left is as wanted
                self.lock.give_up(connection)
            return Applied(None, 0)
        with self._held() as connection:
            number = journal.begin(connection, base=plan.base, holder=who(), steps=len(plan.steps))
        try:
            written = sum(self._write(number, some) for some in _flushes(plan.steps))
            return Applied(self._commit(number, why), written)
        except LockLostError:
            raise
        except EmqError as fault:
            with contextlib.suppress(EmqError), self.ledger.write() as connection:  # the ledger itself may be the fault
                journal.fail(connection, number, str(fault))
            raise

    @contextlib.contextmanager
    def _held(self) -> Iterator[Connection]:
        """A writing transaction in which the lock is ours, and renewed."""
        with self.ledger.write() as connection:
            self.lock.assert_held(connection)
            yield connection

    def _write(self, number: int, steps: Sequence[Step]) -> int:
        """Some settings, in one flush: how many were written; the others were so already."""
        work = [(step, step.queue, step.write) for step in steps if step.write is not None and step.queue is not None]
        if not work:
            return 0
        wanted: dict[str, list[str]] = {}
        for _, queue, want in work:
            wanted.setdefault(queue, []).append(want.setting)
        live = read_settings(self.server, wanted)
        begun: list[tuple[Step, Write, Any]] = []
        for step, queue, want in work:
            now = live[queue].settings[want.setting]
            if now not in (want.expect, want.value):
                raise StaleError([f"{step.address} was {value(want.expect)} on the server, now it is {value(now)}"])
            begun.append((step, want, now))
        with self._held() as connection:
            journal.begin_steps(connection, number, begun)
        for step, _, _ in begun:
            self.watch(step, "begun")
        todo = [(step, want) for step, want, now in begun if now != want.value]
        faults = write(self.server, [(step.queue or "", want.setting, want.value) for step, want in todo])
        for (step, _), fault in zip(todo, faults, strict=True):
            if fault is not None:
                raise fault
            self.watch(step, "written")
        with self._held() as connection:
            journal.end_steps(connection, number, begun[0][0], begun[-1][0])
        for step, want, now in begun:
            self.watch(step, "done" if now != want.value else "already")
        return len(todo)

    def _commit(self, number: int, why: str) -> int:
        """The one transaction: revision, bounds, journal, lock."""
        plan, document, now = self.proposal.plan, self.proposal.document.with_notes(), host_ms()
        last_applied.write(self.server, document, plan.notes, self.ledger.state, (plan.base or 0) + 1)
        with self._held() as connection:
            if revisions.current_number(connection) != plan.base:
                raise StaleError(["another revision came into force"])
            told = as_json(plan)
            head = Head(
                (plan.base or 0) + 1,
                now,
                plan.kind,
                who(),
                self.proposal.files,
                document.sha256,
                why,
                told["summary"],
            )
            revisions.add(connection, head, document, told)
            for step in plan.steps:
                if step.kind == "dead" and step.queue is not None:
                    if step.op == "delete":
                        bounds.drop(connection, step.queue)
                    elif "ids" in step.effect:
                        bounds.put(connection, step.queue, bounds.DEAD, head.number, step.effect["ids"], now)
            journal.end(connection, number, journal.DONE, revision=head.number)
            self.lock.give_up(connection)
        return head.number
