"""Why a pass is not begun, in one form for all doors: a hold, `protect`, a lease of another state or process."""

from __future__ import annotations

from emq_ops.ledger import holds
from emq_ops.ledger.holds import Hold
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.order import Order
from emq_ops.protocol.errors import BadInputError, EmqError


class ProtectedError(EmqError):
    """The queue is protected: no destructive verb runs on it."""


class ProtectedBoundsError(ProtectedError, BadInputError):
    """The queue is protected: the pass runs, but by the config's bounds alone."""


class PumpedError(EmqError):
    """Another pump fires the queue's repeatables."""


class OnHoldError(EmqError):
    """An operator holds the queue. `hold`: who, and until when."""

    def __init__(self, hold: Hold) -> None:
        super().__init__(f"held by {hold.holder}", where=hold.queue, fix=f"emq-ops release {hold.queue}")
        self.hold = hold


def check_protected(what: Pass, order: Order) -> None:
    """Raises ProtectedError where `protect: true` forbids this run."""
    if not getattr(order.policy, "protect", False):
        return
    if what.protected == "refused":
        raise ProtectedError("protected: nothing is removed from it", where=order.queue, fix="set protect: false first")
    if what.protected == "as applied" and not order.applied:
        raise ProtectedBoundsError(
            "protected: its bounds stay the config's",
            where=order.queue,
            fix="take `protect: true` out of the config first",
        )


def check_hold(ledger: Ledger, queue: str, now_ms: int) -> None:
    """Raises OnHoldError where somebody holds the queue. `now_ms`: the server's clock, unix ms."""
    with ledger.read() as connection:
        hold = holds.hold_of(connection, queue, now_ms)
    if hold is not None:
        raise OnHoldError(hold)
