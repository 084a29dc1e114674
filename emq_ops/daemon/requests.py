"""Serving the commands that asked this daemon to run a pass on a queue that it leads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from emq_ops.daemon.dispatch import Dispatcher
from emq_ops.daemon.tasks import DEAD, STALLED, STREAM, Task
from emq_ops.daemon.work import Worker
from emq_ops.ledger import requests
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.requests import Request
from emq_ops.passes.lease.holder import who
from emq_ops.policy.models import DeadPolicy, Policy, StalledPolicy, StreamPolicy
from emq_ops.policy.rows import from_row
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.fence import Fence


def _policy_of(request: Request) -> tuple[str, Policy]:
    """The task's name and the policy that the command gave. Raises BadInputError for a kind that is none."""
    row = request.options.get("policy")
    kinds: dict[str, tuple[str, type[Policy]]] = {
        "sweep": (STALLED, StalledPolicy),
        "trim": (DEAD, DeadPolicy),
        "archive": (STREAM + str(request.options.get("stream", "")), StreamPolicy),
    }
    if request.kind not in kinds or not isinstance(row, dict):
        raise BadInputError(f"no pass '{request.kind}'", fix="use the daemon's own version of emq-ops")
    name, kind = kinds[request.kind]
    return name, from_row(kind, row)


def serve(
    ledger: Ledger,
    queues: Sequence[str],
    dispatcher: Dispatcher,
    worker: Worker,
    fence_of: Callable[[str], Fence | None],
    lease_ms_of: Callable[[str], int],
) -> int:
    """One round: takes what waits for `queues` and is not in hand, and runs it in the pools; answers how many. Raises
    what the ledger raises."""
    served = 0
    for request in requests.waiting(ledger, queues):
        try:
            name, policy = _policy_of(request)
        except EmqError as fault:
            if requests.take(ledger, request.id, who()):
                requests.answer(ledger, request.id, error=str(fault))
            continue
        task = Task(request.queue, name, policy, replace(policy.schedule, timeout_ms=None))
        fence = fence_of(request.queue)
        if fence is None or not dispatcher.occupy(task.key):
            continue
        if not requests.take(ledger, request.id, who()):
            dispatcher.lend(task.key, lambda: None, stores=False)
            continue
        served += 1
        dispatcher.lend(
            task.key, _job(ledger, worker, request, task, fence, lease_ms_of(task.queue)), stores=task.stores
        )
    return served


def _job(
    ledger: Ledger, worker: Worker, request: Request, task: Task, fence: Fence, lease_ms: int
) -> Callable[[], None]:
    def run() -> None:
        try:
            # What a command or a play asks for by bounds of its own is not the trim that a plan foretold.
            only, applied = request.options.get("only"), bool(request.options.get("applied"))
            done = worker.run(task, fence, lease_ms=lease_ms, trigger="request", force=True, only=only, bounded=applied)
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
