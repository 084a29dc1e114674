"""The frame of every pass: the one function that all doors call, and the only place that knows hold, protect, lease,
run row, retries of a life, and how a report of several lives is one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from emq_ops.ledger import tokens
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.frame.context import Context, Services
from emq_ops.passes.frame.contract import Pass, Work
from emq_ops.passes.frame.order import Order, Prediction
from emq_ops.passes.frame.record import RunRow
from emq_ops.passes.frame.refusal import OnHoldError, ProtectedError, PumpedError, check_hold, check_protected
from emq_ops.passes.lease.holder import DAEMON
from emq_ops.passes.lease.owner import ForeignQueueError
from emq_ops.passes.observe.interruptions import notice
from emq_ops.passes.observe.queue_state import QueueState, observe
from emq_ops.protocol.errors import EmqError, FenceError, OutcomeUnknownError, ReconnectedError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.server import Server

LIVES = 3
"""How often a run is begun again: where a reply was lost, a connection ended, or a lease."""


class LeaseSource(Protocol):
    """Where a run has its lease from."""

    def hold(self) -> Fence | None:
        """The queue's lease, None for a pass that takes none. Raises HeldQueueError, ForeignQueueError, FenceError (it
        is not ours)."""
        ...

    def lost(self, fence: Fence) -> bool:
        """A script was refused under this fence: it is in hand no more. Returns whether another may be asked for."""
        ...


@dataclass(slots=True)
class PassOutcome:
    """A run that ended well, or was held. `idle`: there was nothing to do; `before`: the queue as it was seen right
    before (None: the pass does not observe)."""

    report: Any
    idle: bool
    before: QueueState | None = None


def run_pass(services: Services, what: Pass, order: Order, lease: LeaseSource) -> PassOutcome:
    """One run of a pass on a queue, within the caller's deadline: all its lives are one report and one row of the
    ledger. A held queue gives a report that says so (``status`` held); to a pass on demand it is an OnHoldError.

    Raises ProtectedError, HeldQueueError, ForeignQueueError and PumpedError (nothing was begun), FenceError (the lease
    is lost; nothing more was written), and what server, ledger, archive and the pass raise.
    """
    work, ledger = what.loaded, services.state
    report = work.report(order)
    record = RunRow(services.emit, what.name, order, resumable=what.on_demand, unwritten=services.unwritten)
    carried: dict[str, Any] = {}
    with _accounted(ledger, what, order, record, report):
        check_protected(what, order)
        for life in range(LIVES):
            last, fence = life == LIVES - 1, None
            try:
                fence = lease.hold()
                report.token = 0 if fence is None else fence.token
                with _life(services, what, order) as server:
                    context = Context(what.name, order, services, server, report, record, fence, life, carried)
                    return _run(what, work, context)
            except FenceError as fault:
                _forget(services, order.queue)
                if fault.above:
                    tokens.raise_to(ledger, order.queue, fault.above)
                if fence is None or not lease.lost(fence) or last:
                    raise
            except (ReconnectedError, OutcomeUnknownError):
                if last:
                    raise
            report.next_life()
    # Only a hold ends quietly inside: the report says it.
    return PassOutcome(report, idle=True)


@contextlib.contextmanager
def _accounted(ledger: Ledger, what: Pass, order: Order, record: RunRow, report: Any) -> Iterator[None]:
    """Whatever ends the run is in its row."""
    try:
        yield
    except OnHoldError as held:
        report.refuse(held.what, held.hold.until_ms)
        record.refuse(ledger, held.what, report)
        if what.on_demand:
            raise
    except (ProtectedError, ForeignQueueError, PumpedError) as refusal:
        record.refuse(ledger, refusal.what, report)
        raise
    except EmqError as fault:
        record.fail(ledger, fault, report)
        if order.failed is not None:
            order.failed(report)
        raise
    except BaseException:
        record.cut(ledger, report)
        raise


def refuse(services: Services, what: Pass, order: Order, refusal: EmqError) -> None:
    """Records that a run was not begun, where a door found that out before it had a lease."""
    RunRow(services.emit, what.name, order).refuse(services.state, refusal.what, what.loaded.report(order))


def predict_pass(services: Services, what: Pass, order: Order) -> Prediction:
    """What a run would do now. Takes no lease and changes nothing, neither server nor ledger. Raises what `run_pass`
    raises of protection and of reading."""
    check_protected(what, order)
    work = what.loaded
    record = RunRow(services.emit, what.name, order)
    return work.predict(Context(what.name, order, services, services.server, work.report(order), record))


@contextlib.contextmanager
def _life(services: Services, what: Pass, order: Order) -> Iterator[Server]:
    """The server for one life: where the pass observes, facts and writes are of one life of it."""
    if not what.observes:
        yield services.server
        return
    with services.server.session(order.queue) as session:
        yield session


def _run(what: Pass, work: Work, context: Context) -> PassOutcome:
    """One life. Raises OnHoldError."""
    queue, server = context.queue, context.server
    if what.observes:
        context.state = observe(server, queue)
    context.now_ms = context.state.now_ms if context.state is not None else server.now_ms(queue)
    if not what.sets:
        check_hold(context.ledger, queue, context.now_ms)
    if context.state is not None:
        context.newest = notice(server, context.ledger, context.state, context.order.lease_ms, context.emit)
    work.run(context)
    report, idle = context.report, context.report.idle
    if idle and context.order.trigger == DAEMON:
        context.record.discard(context.ledger)  # the daemon counts its idle runs together
    context.record.close(context.ledger, report)
    return PassOutcome(report, idle, context.state)


def _forget(services: Services, queue: str) -> None:
    """What passes remembered of a queue does not hold under another lease."""
    for key in [key for key in services.memory if isinstance(key, tuple) and key[1] == queue]:
        services.memory.pop(key, None)
