"""One act on several queues: one run, with one undo, whose parts are the runs on each queue.

All that is meant is noted in the ledger before anything is touched, so that whoever goes on after a kill does the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.runs import Run
from emq_ops.passes.acts.act import ACTS, act, plan_items, policy_of, resume
from emq_ops.passes.acts.lives import check_dead, order_of, run_act
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.sources import FindArchived
from emq_ops.passes.acts.targets import Targets
from emq_ops.passes.acts.undo import EVERY_QUEUE, undo_run
from emq_ops.passes.frame.budget import at_the_end
from emq_ops.passes.lease.holder import Holder, who
from emq_ops.policy.rows import as_row
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server

_DEFAULTS = ActOptions()
_PLANNED = "planned, not begun yet"


def act_on_all(
    server: Server,
    kind: str,
    targets: Sequence[Targets],
    ledger: Ledger,
    options: Callable[[str], ActOptions],
    begun: Callable[[str], None] = lambda _run: None,
) -> list[ActReport]:
    """As `act`, on targets of several queues; the reports, queue by queue. `options`: of each queue; `begun`: called
    with the one run of it all once it can be resumed and undone. Raises as `act`: what was not done then, `resume_all`
    does."""
    if len(targets) == 1:
        return [act(server, kind, targets[0], ledger, options(targets[0].queue))]
    whole, parts = _plan(server, kind, targets, ledger, options)
    begun(whole.id)
    reports: list[ActReport] = []
    with _closed(ledger, whole):
        for one, part in zip(targets, parts, strict=True):
            chosen = options(one.queue)
            order = order_of(one.queue, policy_of(chosen, whole.id), chosen, part.id, targets=one)
            report = run_act(server, ledger, ACTS[kind], order, chosen)
            reports.append(report)
    return reports


def parts_of(ledger: Ledger, run: str) -> list[str]:
    """The runs of a run over several queues, in order; the run itself where it is of one. Raises BadInputError."""
    found = runs.get(ledger, run)
    return list(found.policy.get("parts", ())) if found.queue == EVERY_QUEUE else [run]


def whole_of(ledger: Ledger, part: str) -> str:
    """The run that `part` is a part of; itself where it is of one queue. Raises BadInputError."""
    return str(runs.get(ledger, part).policy.get("part_of") or part)


def resume_all(server: Server, run: str, ledger: Ledger, options: Callable[[str], ActOptions]) -> list[ActReport]:
    """Goes on with an act that ended early, on however many queues. `options`: of each queue. Raises as `resume`."""
    found = runs.get(ledger, run)
    if found.queue != EVERY_QUEUE:
        return [resume(server, run, ledger, options(found.queue))]
    check_dead(found)
    if not found.slices:
        with ledger.write() as connection:
            runs.finish(connection, run, runs.FAILED, error="killed while it was planned; nothing was touched")
        raise BadInputError(f"run {run} was killed while it was planned; nothing was touched", fix="start it anew")
    left = [part for part in (runs.get(ledger, one) for one in parts_of(ledger, run)) if part.status != runs.DONE]
    if not left:
        raise BadInputError(f"run {run} is done", fix="there is nothing to resume")
    reports: list[ActReport] = []
    with _closed(ledger, found):
        reports += [resume(server, part.id, ledger, options(part.queue)) for part in left]
    return reports


def undo_all(
    server: Server, run: str, ledger: Ledger, find: FindArchived | None = None, options: ActOptions = _DEFAULTS
) -> list[ActReport]:
    """Takes back what a run did, on however many queues. Raises as `undo_run`; asked again, it goes on."""
    return [undo_run(server, part, ledger, find=find, options=options) for part in parts_of(ledger, run)]


def _plan(
    server: Server, kind: str, targets: Sequence[Targets], ledger: Ledger, options: Callable[[str], ActOptions]
) -> tuple[Run, list[Run]]:
    process = {"process": asdict(Holder.me("command"))}
    first = options(targets[0].queue)
    whole = runs.new(
        kind,
        EVERY_QUEUE,
        holder=who(),
        trigger=first.trigger,
        policy=_row(policy_of(first)) | process | {"parts": []},
    )
    runs.begin(ledger, whole)
    parts: list[Run] = []
    for one in targets:
        chosen = options(one.queue)
        policy = _row(policy_of(chosen, whole.id)) | process
        part = runs.new(kind, one.queue, holder=who(), trigger=chosen.trigger, policy=policy)
        with ledger.write() as connection:
            runs.plan(connection, part, _PLANNED)
        plan_items(server, ledger, one, part.id, kind, chosen.emit)
        parts.append(part)
    whole = replace(whole, policy=whole.policy | {"parts": [part.id for part in parts]})
    runs.resume(ledger, whole)  # its row, with the parts
    with ledger.write() as connection:
        count = sum(len(one.jobs) for one in targets)
        runs.save_counts(connection, whole.id, {"selected": count}, slices=1)
    return whole, parts


def _row(policy: Any) -> dict[str, Any]:
    return as_row(policy)


@contextlib.contextmanager
def _closed(ledger: Ledger, whole: Run) -> Iterator[None]:
    """Closes the row of the whole run, however it ends."""
    fault: str | None = None
    try:
        yield
    except BaseException as ended:
        fault = str(ended) or "interrupted"
        raise
    finally:
        found = [runs.get(ledger, part) for part in parts_of(ledger, whole.id)]
        counts = {name: sum(int(one.counts.get(name, 0)) for one in found) for name in ("selected", acts.DONE)}
        status = runs.DONE if all(one.status == runs.DONE for one in found) else runs.INTERRUPTED
        at_the_end(lambda: _finish(ledger, whole.id, status, counts, fault))


def _finish(ledger: Ledger, run: str, status: str, counts: dict[str, int], fault: str | None) -> None:
    with ledger.write() as connection:
        runs.finish(connection, run, status, counts=counts, error=fault)
