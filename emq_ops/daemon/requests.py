"""Serving the commands that asked this daemon to run a pass on a queue that it leads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from emq_ops.daemon.dispatch import Dispatcher
from emq_ops.daemon.tasks import PassTask
from emq_ops.ledger import requests
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.requests import Request
from emq_ops.passes.lease.holder import who
from emq_ops.passes.registry import by_name
from emq_ops.policy.rows import from_row
from emq_ops.protocol.errors import BadInputError, EmqError


def _task_of(request: Request, lease_ms: int) -> PassTask:
    """The task with the policy that the command gave. Raises BadInputError for a kind that is none."""
    what, row = by_name(request.kind), request.options.get("policy")
    if what is None or what.on_demand or not isinstance(row, dict):
        raise BadInputError(f"no pass '{request.kind}'", fix="use the daemon's own version of emq-ops")
    policy = from_row(what.policy, row)
    # The asker waits as long as it likes.
    schedule = replace(policy.schedule, timeout_ms=None)
    return PassTask(request.queue, what, policy, schedule, str(request.options.get("stream") or ""), lease_ms)


def serve(ledger: Ledger, queues: Sequence[str], dispatcher: Dispatcher, lease_ms_of: Callable[[str], int]) -> int:
    """One round: takes what waits for `queues` and is not in hand, and runs it in the pools; returns how many. What a
    leader before us took and did not end waits again. Raises what the ledger raises."""
    served = 0
    for request in requests.left_behind(ledger, queues, who()):
        requests.put_back(ledger, request)
    for request in requests.waiting(ledger, queues):
        try:
            task = _task_of(request, lease_ms_of(request.queue))
        except EmqError as fault:
            if requests.take(ledger, request.id, who()):
                requests.answer(ledger, request.id, error=str(fault))
            continue
        if not dispatcher.leases.ready(task.queue) or not dispatcher.occupy(task.key):
            continue
        if not requests.take(ledger, request.id, who()):
            dispatcher.lend(task.key, lambda: None, stores=False)
            continue
        served += 1
        dispatcher.lend(task.key, _job(ledger, dispatcher, request, task), stores=task.stores)
    return served


def _job(ledger: Ledger, dispatcher: Dispatcher, request: Request, task: PassTask) -> Callable[[], None]:
    def run() -> None:
        try:
            # What a command or a play asks for by bounds of its own is not the trim that a plan foretold.
            asked = {"only": request.options.get("only"), "applied": bool(request.options.get("applied"))}
            done = dispatcher.runner.run(task, dispatcher.leases.lease_of(task.queue), "request", force=True, **asked)
        except EmqError as fault:
            _answer(ledger, request, error=str(fault))
        except Exception as fault:  # noqa: BLE001 - the asker must learn of it, and the daemon go on
            _answer(ledger, request, error=f"fault of emq-ops itself: {type(fault).__name__}: {fault}")
        else:
            _answer(ledger, request, report=done.report.as_row())

    return run


def _answer(
    ledger: Ledger, request: Request, *, report: dict[str, Any] | None = None, error: str | None = None
) -> None:
    with contextlib.suppress(EmqError):  # the ledger is away: the asker gives up by itself, and the run is recorded
        requests.answer(ledger, request.id, report=report, error=error)
