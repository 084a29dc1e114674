"""Doing a plan: the state lock, a journal, the writes one by one, then one revision in one transaction.

Killed anywhere, it leaves the journal; the next plan shows it and the next apply goes on from there, since a setting
that is as wanted is not written again. The lock is looked at in the transaction before each write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emq_ops.deploy import journal, revisions
from emq_ops.deploy.document import Document
from emq_ops.deploy.live import read_setting
from emq_ops.deploy.lock import LockLostError, StateLock
from emq_ops.deploy.model import Plan, Step
from emq_ops.deploy.render import as_json, value
from emq_ops.deploy.saved import StaleError, facts_of, moved_facts
from emq_ops.deploy.writes import write
from emq_ops.ledger import bounds
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.passes.lease.holder import who
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server

Replan = Callable[[], Plan]
"""Makes the same plan anew, from the facts as they are now."""
Watch = Callable[[Step, str], None]
"""Told of each write: the step and ``begun``, ``written``, then ``done`` (recorded) or ``already`` (was so)."""


class RefusedError(EmqError):
    """The plan must not be applied as it is."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply left: the new revision (None: nothing was to do), how many settings were written."""

    revision: int | None
    written: int


def check(plan: Plan, *, allow_loss: bool) -> None:
    """Raises RefusedError for a plan that must not be applied."""
    if plan.refusals:
        raise RefusedError(plan.refusals[0])
    if plan.losses and not allow_loss:
        more = f" (and {len(plan.losses) - 1} more)" if len(plan.losses) > 1 else ""
        raise RefusedError(f"data could be lost: {plan.losses[0]}{more}", fix="--allow-loss, if that is meant")


def apply(
    server: Server,
    ledger: Ledger,
    plan: Plan,
    document: Document,
    replan: Replan,
    *,
    files: Sequence[dict[str, str]] = (),
    allow_loss: bool = False,
    why: str = "",
    watch: Watch = lambda _step, _what: None,
) -> Applied:
    """Does `plan`, which leads to `document`. `replan` is asked once the lock is ours: where the facts moved since
    `plan` was shown, nothing is done.

    Raises RefusedError, StaleError, LockedError (somebody else applies), LockLostError, and what server and ledger
    raise.
    """
    check(plan, allow_loss=allow_loss)
    lock = StateLock(ledger, plan.kind)
    lock.take()
    try:
        fresh = replan()
        _same(plan, fresh)
        check(fresh, allow_loss=allow_loss)
        return _do(server, ledger, lock, fresh, document, list(files), why, watch)
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
    moved += moved_facts(facts_of(shown), facts_of(fresh))
    if not moved and [s.address for s in shown.steps] != [s.address for s in fresh.steps]:
        moved.append("the steps are others than those that were shown")
    if moved:
        raise StaleError(moved)


def _do(
    server: Server,
    ledger: Ledger,
    lock: StateLock,
    plan: Plan,
    document: Document,
    files: list[dict[str, str]],
    why: str,
    watch: Watch,
) -> Applied:
    if plan.empty:
        with ledger.write() as connection:
            lock.assert_held(connection)
            journal.repair(connection)  # whatever an interrupted apply left is as wanted
            lock.give_up(connection)
        return Applied(None, 0)
    with ledger.write() as connection:
        lock.assert_held(connection)
        number = journal.begin(connection, base=plan.base, holder=who(), steps=len(plan.steps))
    written = 0
    try:
        for step in plan.steps:
            if step.write is not None:
                written += _write(server, ledger, lock, number, step, watch)
        revision = _commit(ledger, lock, number, plan, document, files, why)
    except LockLostError:
        raise
    except EmqError as fault:
        with contextlib.suppress(EmqError), ledger.write() as connection:  # the ledger itself may be the fault
            journal.fail(connection, number, str(fault))
        raise
    return Applied(revision, written)


def _write(server: Server, ledger: Ledger, lock: StateLock, number: int, step: Step, watch: Watch) -> int:
    """One setting: 1 where it was written, 0 where it was so already."""
    assert step.write is not None
    assert step.queue is not None
    want = step.write
    now = read_setting(server, step.queue, want.setting)
    if now not in (want.expect, want.value):
        raise StaleError([f"{step.address} was {value(want.expect)} on the server, now it is {value(now)}"])
    with ledger.write() as connection:
        lock.assert_held(connection)
        journal.begin_step(connection, number, step, now, want.value)
    watch(step, "begun")
    if now != want.value:
        write(Queue(server, step.queue), want.setting, want.value)
        watch(step, "written")
    with ledger.write() as connection:
        lock.assert_held(connection)
        journal.end_step(connection, number, step)
    watch(step, "done" if now != want.value else "already")
    return int(now != want.value)


def _commit(
    ledger: Ledger,
    lock: StateLock,
    number: int,
    plan: Plan,
    document: Document,
    files: list[dict[str, str]],
    why: str,
) -> int:
    """The one transaction: revision, bounds, journal, lock."""
    now = host_ms()
    with ledger.write() as connection:
        lock.assert_held(connection)
        if revisions.current_number(connection) != plan.base:
            raise StaleError(["another revision came into force"])
        revision = revisions.add(
            connection,
            document,
            as_json(plan),
            base=plan.base,
            kind=plan.kind,
            who=who(),
            files=files,
            now_ms=now,
            why=why,
        )
        for step in plan.steps:
            if step.kind == "dead" and step.queue is not None:
                if step.op == "delete":
                    bounds.drop(connection, step.queue)
                elif "ids" in step.effect:
                    bounds.put(connection, step.queue, bounds.DEAD, revision, step.effect["ids"], now)
        journal.end(connection, number, journal.DONE, revision=revision)
        lock.give_up(connection)
    return revision
