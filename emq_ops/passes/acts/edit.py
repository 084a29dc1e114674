"""Putting another payload in the place of a job's, and the old one back."""

from __future__ import annotations

import hashlib

from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.runs import Run
from emq_ops.ledger.snapshot import JobSnapshot
from emq_ops.passes.acts.declared import EDIT, EditPolicy
from emq_ops.passes.acts.lives import order_of, run_act
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.slices import read_acted
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Order, Prediction
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.jobs import read_row

_DEFAULTS = ActOptions()


class EditPayload(Work):
    """One job's payload. `Order.options`: `payload`, the new one."""

    def report(self, order: Order) -> ActReport:
        """One job is meant."""
        return ActReport(order.queue, kind=acts.EDIT, selected=1)

    def run(self, context: Context) -> None:
        """Keeps the job as it is in the ledger, then swaps."""
        job, payload = context.policy.job, context.order.options["payload"]
        context.open()
        if "seen" not in context.carried:
            context.carried["seen"] = _seen(context, job)
            _keep(context, job, context.carried["seen"])
        seen: JobSnapshot = context.carried["seen"]
        swap(context, job, sha1(seen.get(b"payload") or b""), payload)
        code = _settle(context)
        context.report.left.clear()
        context.report.add({job: code})

    def predict(self, context: Context) -> Prediction:
        """Whether the job is there."""
        _seen(context, context.policy.job)
        context.report.status, context.report.done_jobs = "dry", [context.policy.job]
        return Prediction(context.report, (context.policy.job,), count=1)


def edit_payload(
    server: Server, queue: str, job: str, payload: bytes, ledger: Ledger, options: ActOptions = _DEFAULTS
) -> ActReport:
    """Puts `payload` in the place of the job's. Raises BadInputError where there is no such job, OnHoldError,
    ForeignQueueError, and what the server and the ledger raise."""
    return run_act(server, ledger, EDIT, order_to_edit(queue, job, payload, options), options)


def order_to_edit(queue: str, job: str, payload: bytes, options: ActOptions = _DEFAULTS) -> Order:
    """As a door asks for it."""
    policy = EditPolicy(why=options.why, job=job_id(job), new=sha1(payload))
    return order_of(queue, policy, options, payload=payload)


def put_back(context: Context, edit: Run) -> None:
    """Puts the payload back that `edit` replaced, if the new one still stands there."""
    report = context.report
    report.selected = 0
    for item, whole in acts.removed(context.ledger, edit.id):
        report.selected += 1
        if whole is None:
            report.add({item.job: "lost"})
            continue
        swap(context, item.job, str(edit.policy["new"]), whole.get(b"payload") or b"")
        code = _acted(context)
        with context.ledger.write() as connection:
            if code == acts.DONE:
                acts.mark_undone(connection, edit.id, [item.job], context.run)
            runs.save_counts(connection, context.run, {"selected": 1, code: 1})
        report.add({item.job: code})
        context.server.write("UNLINK", keys_of(context.queue).acted(context.run))


def swap(context: Context, job: str, seen: str, payload: bytes) -> None:
    """One call of the script; what it did stays on the server. `seen`: SHA-1 of the payload to replace."""
    keys = keys_of(context.queue)
    found = [keys.acted(context.run), keys.row(job), keys.active]
    context.server.run(load("act_edit"), found, [job, seen, sha1(payload), payload])


def sha1(payload: bytes) -> str:
    """As the script tells payloads apart."""
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()


def _seen(context: Context, job: str) -> JobSnapshot:
    row = read_row(Queue(context.server, context.queue), job)
    if row is None:
        raise BadInputError(f"no job {job}", where=context.queue, fix=f"look for it: emq-ops job find {job}")
    return JobSnapshot(tuple(text for pair in row.items() for text in pair))


def _keep(context: Context, job: str, seen: JobSnapshot) -> None:
    with context.ledger.write() as connection:
        facts = (job, _count(seen.get(b"attempts")), _count(seen.get(b"stalled")))
        acts.plan(connection, context.run, [facts], host_ms())
        acts.settle(connection, context.run, {job: acts.PLANNED}, host_ms(), {job: seen})
        runs.save_counts(connection, context.run, {"selected": 1}, slices=1)


def _count(raw: bytes | None) -> int:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= 15 else 0


def _acted(context: Context) -> str:
    found = read_acted(context.server, keys_of(context.queue), context.run)
    return found[-1][1] if found else "changed"


def _settle(context: Context) -> str:
    code = _acted(context)
    with context.ledger.write() as connection:
        acts.settle(connection, context.run, {context.policy.job: code}, host_ms())
    context.server.write("UNLINK", keys_of(context.queue).acted(context.run))
    return code
