"""Run requests: a command asks the daemon that leads a queue to run a pass, and waits for its report.

A request is ``waiting`` until a leader takes it (``running``), then ``done`` with a report or ``failed`` with an error.
One that its asker gave up on is ``withdrawn``; one whose leader died is put back to waiting by the next leader.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import update

from emq_ops.database.records import Records
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.schema import requests
from emq_ops.protocol.ids import mint

WAITING, RUNNING, DONE, FAILED, WITHDRAWN = "waiting", "running", "done", "failed", "withdrawn"


@dataclass(frozen=True, slots=True)
class Request:
    """A wish for a pass of `kind` on `queue`. `options`: what the command said, as JSON says it. Times: host clock."""

    id: str
    kind: str
    queue: str
    options: dict[str, Any]
    status: str
    holder: str
    asked_ms: int
    taken_by: str | None
    done_ms: int | None
    report: dict[str, Any] | None
    error: str | None

    @property
    def over(self) -> bool:
        return self.status in (DONE, FAILED, WITHDRAWN)


_REQUESTS = Records(requests, Request, packed=["options", "report"])


def ask(ledger: Ledger, kind: str, queue: str, options: dict[str, Any], holder: str) -> str:
    """Leaves a request; returns its id."""
    request = mint("REQ")
    values = {"id": request, "kind": kind, "queue": queue, "status": WAITING, "holder": holder}
    with ledger.write() as connection:
        connection.execute(requests.insert().values(**values, options=json.dumps(options), asked_ms=host_ms()))
    return request


def get(ledger: Ledger, request: str) -> Request | None:
    """The request as it stands, None where retention took it."""
    with ledger.read() as connection:
        return _REQUESTS.first(connection, _REQUESTS.select.where(requests.c.id == request))


def waiting(ledger: Ledger, queues: Sequence[str] | None = None) -> list[Request]:
    """What waits (for these queues), oldest first."""
    wanted = _REQUESTS.select.where(requests.c.status == WAITING).order_by(requests.c.id)
    with ledger.read() as connection:
        found = _REQUESTS.all(connection, wanted)
    return found if queues is None else [request for request in found if request.queue in set(queues)]


def take(ledger: Ledger, request: str, holder: str) -> bool:
    """Takes a waiting request; False where another leader, or its asker, was quicker."""
    with ledger.write() as connection:
        statement = update(requests).where(requests.c.id == request, requests.c.status == WAITING)
        return bool(connection.execute(statement.values(status=RUNNING, taken_by=holder)).rowcount)


def answer(ledger: Ledger, request: str, *, report: dict[str, Any] | None = None, error: str | None = None) -> None:
    """Ends a request with a report, or with an error."""
    values: dict[str, Any] = {"status": FAILED if error else DONE, "error": error, "done_ms": host_ms()}
    values["report"] = None if report is None else json.dumps(report)
    with ledger.write() as connection:
        connection.execute(update(requests).where(requests.c.id == request).values(values))


def withdraw(ledger: Ledger, request: str) -> bool:
    """Takes back a request that nobody took yet; False where somebody did."""
    with ledger.write() as connection:
        statement = update(requests).where(requests.c.id == request, requests.c.status == WAITING)
        return bool(connection.execute(statement.values(status=WITHDRAWN, done_ms=host_ms())).rowcount)


def left_behind(ledger: Ledger, queues: Sequence[str], holder: str) -> list[Request]:
    """What others than `holder` took for these queues and did not end. Of queues that `holder` leads by now, they never
    will."""
    wanted = _REQUESTS.select.where(requests.c.status == RUNNING, requests.c.taken_by != holder)
    with ledger.read() as connection:
        found = _REQUESTS.all(connection, wanted)
    return [request for request in found if request.queue in set(queues)]


def put_back(ledger: Ledger, request: Request) -> bool:
    """Lets it wait again; False where it was ended meanwhile, or taken by another."""
    with ledger.write() as connection:
        statement = update(requests).where(
            requests.c.id == request.id, requests.c.status == RUNNING, requests.c.taken_by == request.taken_by
        )
        return bool(connection.execute(statement.values(status=WAITING, taken_by=None)).rowcount)
