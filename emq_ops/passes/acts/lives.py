"""The run of an act in the ledger, over the lives of the processes that carry it out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from emq_ops.ledger import runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.events import Emit, PassEnded
from emq_ops.passes.lease.holder import Holder, who
from emq_ops.protocol.errors import BadInputError, EmqError


def start(ledger: Ledger, kind: str, queue: str, options: ActOptions, policy: Mapping[str, Any]) -> str:
    """A new run. `policy`: what it keeps beside the reason and this process, so that another may go on with it."""
    kept = {"why": options.why, **policy, "process": _process()}
    return runs.start(ledger, kind, queue, holder=who(), trigger=options.trigger, policy=kept)


def take_over(ledger: Ledger, found: runs.Run) -> None:
    """This process goes on with the run."""
    runs.resume(ledger, replace(found, holder=who(), policy={**found.policy, "process": _process()}))


@contextlib.contextmanager
def accounted(ledger: Ledger, report: ActReport, emit: Emit) -> Iterator[None]:
    """What is done inside ends `report`'s run: done with its counts, or interrupted by the EmqError that leaves."""
    run = report.run or ""
    try:
        yield
    except EmqError as fault:
        with ledger.write() as connection:
            runs.finish(connection, run, runs.INTERRUPTED, error=str(fault))
        emit(PassEnded(report.queue, run, kind=report.kind, status=runs.INTERRUPTED, error=str(fault)))
        raise
    counts = report.counts()
    with ledger.write() as connection:
        runs.finish(connection, run, runs.DONE, counts=counts)
    emit(PassEnded(report.queue, run, kind=report.kind, status=runs.DONE, counts=counts))


def check_dead(found: runs.Run) -> None:
    """Raises BadInputError where the process of a run that is not over may still live."""
    process = found.policy.get("process")
    if found.status == runs.RUNNING and isinstance(process, dict) and not Holder(**process).surely_dead:
        raise BadInputError(
            f"run {found.id} is still running, by {found.holder}", fix="wait for it, or end that process"
        )


def _process() -> dict[str, Any]:
    """This process, so that another can tell whether it lives."""
    return asdict(Holder.me("command"))
