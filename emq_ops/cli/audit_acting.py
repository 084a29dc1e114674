"""Acting on what ``emq-ops audit dead`` selected: shown first, done with ``--yes``, taken up again after a kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from emq_ops.cli.asking import require
from emq_ops.cli.audit_parts import DONE_WORDS, format_act, show_act
from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import counted, say
from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.act import ACTS, order_to_act, preview_resume
from emq_ops.passes.acts.batch import act_on_all, parts_of, resume_all, whole_of
from emq_ops.passes.acts.declared import ActPolicy
from emq_ops.passes.acts.lives import check_allowed, order_of
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import RESUMED_BY, ActReport
from emq_ops.passes.acts.slices import TAKES_AWAY
from emq_ops.passes.acts.targets import Targets
from emq_ops.passes.acts.undo import UNDOABLE
from emq_ops.passes.events import Event, PassStarted
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.frame import predict_pass
from emq_ops.passes.frame.refusal import check_protected
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server

_DEFAULTS = ActOptions()


def protected(context: CommandContext, queue: str) -> bool:
    """Whether the config protects the queue."""
    return context.layers.effective(queue).protect


def predict(
    context: CommandContext,
    server: Server,
    ledger: Ledger | None,
    kind: str,
    targets: Sequence[Targets],
    options: ActOptions = _DEFAULTS,
) -> list[ActReport]:
    """What an act would do, for each queue. Raises ProtectedError where it would be refused."""
    services = Services(server, ledger)
    orders = [order_to_act(one, replace(options, protect=protected(context, one.queue))) for one in targets]
    return [predict_pass(services, ACTS[kind], order).report for order in orders]


def carry_out(
    context: CommandContext, server: Server, ledger: Ledger, kind: str, targets: Sequence[Targets], options: ActOptions
) -> list[ActReport]:
    """Acts on each queue, as one run. What refuses one of them refuses all, before any is touched; where an act breaks
    off, what was done until then is told, and how to go on."""
    each = {one.queue: replace(options, protect=protected(context, one.queue)) for one in targets}
    for one in targets:
        check_allowed(server, ledger, ACTS[kind], order_to_act(one, each[one.queue]))
    with _explained_if_it_breaks_off(kind, ledger) as begun:

        def note(event: Event) -> None:
            if isinstance(event, PassStarted) and len(targets) == 1:
                begun.append(event.run or "")

        def of(queue: str) -> ActOptions:
            return replace(each[queue], emit=note)

        return act_on_all(server, kind, targets, ledger, of, begun.append)


@contextlib.contextmanager
def _explained_if_it_breaks_off(kind: str, ledger: Ledger) -> Iterator[list[str]]:
    begun: list[str] = []
    try:
        yield begun
    except BaseException:
        for run in begun[:1]:
            parts = [runs.get(ledger, part) for part in parts_of(ledger, run)]
            for part in parts:
                done, selected = part.counts.get(acts.DONE, 0), part.counts.get("selected", 0)
                say(f"{part.queue}: {done} of {selected} done before it broke off")
            back = f", or `emq-ops undo {run}` takes back what was done" if kind in UNDOABLE else ""
            queues = parts[0].queue if len(parts) == 1 else f"{len(parts)} queues"
            say(f"emq-ops: {queues}: not done; `{RESUMED_BY[kind]} --resume {run}` goes on{back}")
        raise


def tell_acts(reports: Sequence[ActReport], ledger: Ledger | None) -> None:
    """What was done, a line a queue, and in the last one how to take all of it back."""
    for report in reports:
        say("\n".join(format_act(report)))
    done = [report for report in reports if report.done and report.run]
    if not done or ledger is None:
        return
    run = whole_of(ledger, done[0].run or "")
    if len(reports) > 1:
        count = sum(report.done for report in reports)
        say(f"{count} {DONE_WORDS[reports[0].kind]} in {counted(len(reports), 'queue')} (run {run})")
    say(f"to take it back: emq-ops undo {run}")


def go_on(context: CommandContext, run: str, kind: str | None, *, rate: int | None, dry_run: bool) -> None:
    """``--resume RUN``. Raises BadInputError where `kind` says another act than the run is."""
    with context.ledger() as ledger:
        found = runs.get(ledger, run)
        if kind is not None and found.kind != kind:
            raise BadInputError(f"run {run} is a {found.kind}, no {kind}", fix=f"{RESUMED_BY.get(found.kind)} --resume")
        parts = [runs.get(ledger, part) for part in parts_of(ledger, run)]
        if dry_run:
            for part in parts:
                if part.status != runs.DONE or len(parts) == 1:
                    report = preview_resume(ledger, part.id)
                    policy = ActPolicy(protect=protected(context, part.queue))
                    check_protected(ACTS[part.kind], order_of(part.queue, policy, ActOptions()))
                    show_act(context, report)
            return
        if found.kind in TAKES_AWAY:
            names = ", ".join(part.queue for part in parts[:5])
            require(context, f"Go on with run {run}, which removes jobs of {names}?")

        def of(queue: str) -> ActOptions:
            return ActOptions(rate=rate, protect=protected(context, queue))

        with context.server("audit") as server:
            for report in resume_all(server, run, ledger, of):
                show_act(context, report)
