"""Running one pass from a command or a play: under a lease of its own, or, beside a live daemon, through it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emq_ops.ledger import requests
from emq_ops.ledger.requests import Request
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.frame import refuse, run_pass
from emq_ops.passes.frame.order import Order
from emq_ops.passes.frame.refusal import ProtectedError, check_protected
from emq_ops.passes.lease.holder import DAEMON, who
from emq_ops.passes.lease.kept import KeptLease
from emq_ops.passes.lease.owner import ForeignQueueError
from emq_ops.passes.lease.queue_lease import LEASE_MS, WAIT_SECONDS, HeldQueueError, QueueLease
from emq_ops.policy.rows import as_row
from emq_ops.protocol.errors import EmqError

ANSWER_SECONDS = 300.0
"""How long a command waits for the report of a daemon that goes on living."""
_POLL_SECONDS = 0.1
_FELT_SECONDS = 1.0


class RequestFailedError(EmqError):
    """The daemon ran the pass that we asked for, and it failed."""


@dataclass(frozen=True, slots=True)
class Patience:
    """`wait_seconds` for a lease that a command holds, `answer_seconds` for a daemon's report; `lease_ms`: how long our
    own lease stands; `tell`: given a line once the wait is felt."""

    wait_seconds: float = WAIT_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    lease_ms: int = LEASE_MS
    tell: Callable[[str], None] = lambda _line: None


def run_once(services: Services, what: Pass, order: Order, patience: Patience | None = None) -> dict[str, Any]:
    """The report (as a row) of one run: under a lease that is waited for, at once where its holder is dead; beside a
    live daemon of this state a run request, whose report it is (with ``through`` naming the daemon). Raises
    HeldQueueError, ForeignQueueError, RequestFailedError, and what `run_pass` raises."""
    patience = patience or Patience()
    lease = QueueLease(services.server, services.state, order.queue, lease_ms=patience.lease_ms, emit=services.emit)
    with KeptLease(lease) as kept:
        try:
            check_protected(what, order)
            asked = _lead_or_ask(lease, what, order, patience)
        except (ProtectedError, ForeignQueueError) as refusal:
            refuse(services, what, order, refusal)
            raise
        if asked is not None:
            return asked
        row: dict[str, Any] = run_pass(services, what, order, kept).report.as_row()
        return row


def to_request(order: Order) -> dict[str, Any]:
    """What of an order goes to the daemon, as JSON takes it."""
    only = None if order.only is None else list(order.only)
    return {"policy": as_row(order.policy), "stream": order.target, "applied": order.applied, "only": only}


def _lead_or_ask(lease: QueueLease, what: Pass, order: Order, patience: Patience) -> dict[str, Any] | None:
    """None once we lead; else the daemon's report."""
    ledger, request, told = lease.ledger, "", False
    begun = time.monotonic()
    until = begun + patience.wait_seconds
    while True:
        try:
            lease.try_acquire()
        except HeldQueueError as held:
            if held.holder.role == DAEMON and not request:
                request = requests.ask(ledger, what.name, lease.queue, to_request(order), who())
                until = time.monotonic() + patience.answer_seconds
            found = requests.get(ledger, request) if request else None
            if found is not None and found.over:
                return _answer_of(found, str(held.holder))
            if time.monotonic() >= until:
                if request:
                    requests.withdraw(ledger, request)
                raise
            if not told and time.monotonic() >= begun + _FELT_SECONDS:
                told = True
                what_for = "its report on what we asked for" if request else "its lease"
                seconds = max(0.0, until - time.monotonic())
                who_leads = f"the {held.holder.role} {held.holder}"
                patience.tell(f"{lease.queue}: waiting for {who_leads}, {what_for}: up to {seconds:.0f} s")
            time.sleep(_POLL_SECONDS)
            continue
        if request:
            # The daemon went away. What it took of us and did not finish is ours to do now.
            requests.withdraw(ledger, request)
        return None


def _answer_of(request: Request, daemon: str) -> dict[str, Any]:
    if request.status != requests.DONE or request.report is None:
        raise RequestFailedError(
            request.error or "it was withdrawn", where=request.queue, fix=f"see the log of {daemon}"
        )
    return {**request.report, "through": request.taken_by or daemon}
