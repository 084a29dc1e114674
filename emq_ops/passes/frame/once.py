"""Running one pass from a command: under a lease of its own, or, beside a live daemon, through it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Protocol

from emq_ops.ledger import requests
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.requests import Request
from emq_ops.passes.events import Emit, nowhere
from emq_ops.passes.lease.holder import DAEMON, who
from emq_ops.passes.lease.queue_lease import LEASE_MS, WAIT_SECONDS, HeldQueueError, QueueLease
from emq_ops.protocol.errors import EmqError, FenceError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.server import Server

ANSWER_SECONDS = 300.0
"""How long a command waits for the report of a daemon that goes on living."""
_POLL_SECONDS = 0.1
_LIVES = 3


class Reported(Protocol):
    """A report of a pass."""

    def as_row(self) -> dict[str, Any]: ...


class RequestFailedError(EmqError):
    """The daemon ran the pass that we asked for, and it failed."""


def run_once(
    server: Server,
    ledger: Ledger,
    queue: str,
    kind: str,
    run: Callable[[Fence], Reported],
    options: dict[str, Any],
    *,
    wait_seconds: float = WAIT_SECONDS,
    answer_seconds: float = ANSWER_SECONDS,
    lease_ms: int = LEASE_MS,
    emit: Emit = nowhere,
) -> dict[str, Any]:
    """The report (as a row) of one pass of `kind` on `queue`: `run` under a lease that is waited for `wait_seconds`, at
    once where its holder is dead; beside a live daemon of this state a run request with `options`, whose report it is
    (with ``through`` naming the daemon). A pass that is fenced off (the server restarted) begins again under a new
    lease. Raises HeldQueueError, ForeignQueueError, RequestFailedError, and what `run` raises."""
    for life in range(_LIVES):
        leadership = QueueLease(server, ledger, queue, lease_ms=lease_ms, emit=emit)
        asked = _lead_or_ask(leadership, kind, options, wait_seconds, answer_seconds)
        if asked is not None:
            return asked
        try:
            with leadership.kept() as fence:
                return run(fence).as_row()
        except FenceError:
            if life == _LIVES - 1:
                raise
    raise AssertionError("unreachable")


def _lead_or_ask(
    leadership: QueueLease, kind: str, options: dict[str, Any], wait_seconds: float, answer_seconds: float
) -> dict[str, Any] | None:
    """None once we lead; else the daemon's report."""
    ledger, request = leadership.ledger, ""
    until = time.monotonic() + wait_seconds
    while True:
        try:
            leadership.try_acquire()
        except HeldQueueError as held:
            if held.holder.role == DAEMON and not request:
                request = requests.ask(ledger, kind, leadership.queue, options, who())
                until = time.monotonic() + answer_seconds
            found = requests.get(ledger, request) if request else None
            if found is not None and found.over:
                return _answer_of(found, str(held.holder))
            if time.monotonic() >= until:
                if request:
                    requests.withdraw(ledger, request)
                raise
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


def serve_requests(
    ledger: Ledger, queues: list[str], run: Callable[[Request], Reported], holder: str | None = None
) -> int:
    """One round of a leader: runs what waits for the queues that it leads, one after the other, and leaves each report;
    answers how many. `run` has the options that the command gave. An EmqError of it is the request's error."""
    holder = holder or who()
    served = 0
    for request in requests.waiting(ledger, queues):
        if not requests.take(ledger, request.id, holder):
            continue
        served += 1
        try:
            report = run(request)
        except EmqError as fault:
            requests.answer(ledger, request.id, error=str(fault))
        except BaseException:
            with contextlib.suppress(EmqError):  # whoever leads next runs it
                requests.put_back(ledger, request.queue, "")
            raise
        else:
            requests.answer(ledger, request.id, report=report.as_row())
    return served
