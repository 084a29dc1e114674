"""A leader that serves run requests, as the daemon does, one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from emq_ops.ledger import requests
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.requests import Request
from emq_ops.protocol.errors import EmqError


def serve_requests(ledger: Ledger, queues: list[str], run: Callable[[Request], Any], holder: str) -> None:
    """One round: runs what waits for `queues`, and leaves each report. An EmqError of `run` is the request's."""
    for request in requests.waiting(ledger, queues):
        if not requests.take(ledger, request.id, holder):
            continue
        try:
            report = run(request)
        except EmqError as fault:
            requests.answer(ledger, request.id, error=str(fault))
        except BaseException:
            with contextlib.suppress(EmqError):  # whoever leads next runs it
                for left in requests.left_behind(ledger, [request.queue], ""):
                    requests.put_back(ledger, left)
            raise
        else:
            requests.answer(ledger, request.id, report=report.as_row())
