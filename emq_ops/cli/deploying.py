"""What plan, apply, drift, history, rollback and destroy stand on: an open session, plans shown, questions asked."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

from emq_ops.cli.asking import ask
from emq_ops.cli.context import CommandContext
from emq_ops.cli.looking import ledger_for_a_look
from emq_ops.cli.output import emit_rows, say
from emq_ops.cli.progress import bar
from emq_ops.cli.table import look, plain
from emq_ops.config.effective import Layers
from emq_ops.config.loader import Loaded
from emq_ops.deploy import render, render_markdown
from emq_ops.deploy.apply import Applied
from emq_ops.deploy.deployment import Deployment
from emq_ops.deploy.live import Unread
from emq_ops.deploy.model import SIGNS, Plan, Proposal, Step
from emq_ops.deploy.store import revisions
from emq_ops.protocol.server import Server
from emq_ops.protocol.terminal import takes_colour

COLUMNS = ("sign", "address", "field", "before", "after", "effect")


@contextlib.contextmanager
def deployment_of(context: CommandContext, verb: str, *, look: bool = False) -> Iterator[Deployment]:
    """Opens server and state. Where no file and no ``--url`` says which server, the revision in force does. `look`: no
    state is made where there is none yet."""
    wiring = context.wiring
    with contextlib.ExitStack() as stack:
        if look:
            ledger, made = stack.enter_context(ledger_for_a_look(wiring.state_url, wiring.base))
        else:
            ledger, made = stack.enter_context(context.ledger()), True
        server = stack.enter_context(context.server_wiring(revisions.current(ledger)).connect(verb))
        deployment = Deployment(server, ledger, wiring, made=made)
        if wiring.archive is not None:
            deployment.unread = _unread(context, server, stack)
        yield deployment


def _unread(context: CommandContext, server: Server, stack: contextlib.ExitStack) -> Unread:
    """What the archive knows of streams, looked up when a stream changes: most plans need none."""

    @functools.cache
    def streams() -> Unread:
        from emq_ops.cli.looking_archive import UnreadStreams

        return stack.enter_context(contextlib.closing(UnreadStreams(context, server)))

    return lambda queue, stream: streams()(queue, stream)


def show_plan(plan: Plan, context: CommandContext, *, markdown: bool = False, loaded: Loaded | None = None) -> None:
    """The plan on stdout, in the form that was asked for. `loaded`: the file that it is of, where it was not read with
    the command's environment."""
    output = context.output
    if markdown:
        sys.stdout.write(render_markdown.markdown(plan))
    elif output == "json":
        sys.stdout.write(json.dumps(plain(render.as_json(plan)), indent=2) + "\n")
    elif output in ("jsonl", "csv"):
        emit_rows(_rows(plan), output, COLUMNS)
    else:
        # The plan of an apply is of the file: its durations and sizes are told as they stand there.
        layers = context.layers if loaded is None else Layers(loaded)
        told = functools.partial(_as_in_file, layers) if plan.kind == "apply" else None
        sys.stdout.write(render.text(plan, colour=takes_colour(), unfolded=look.verbose, told=told))
    sys.stdout.flush()


def _as_in_file(layers: Layers, step: Step) -> Step:
    """A step of a policy with the values that it brings as the file says them: 24h is not read back as 1d."""
    if step.queue is None or step.op == "delete" or step.kind == "setting":
        return step
    effective = layers.effective(step.queue)
    for what, path, _ in effective.sections():
        if step.address == f"{step.queue}/{what.task(*path[1:])}":
            fields = [
                field if field.after is None else replace(field, after=effective.said((*path, field.name), field.after))
                for field in step.fields
            ]
            return replace(step, fields=fields)
    return step


def _rows(plan: Plan) -> Iterator[dict[str, object]]:
    for step in plan.steps:
        sign, effect = SIGNS[step.op], render.effect_words(step)
        for field in step.fields:
            yield {
                "sign": sign,
                "address": step.address,
                "field": field.name,
                "before": field.before,
                "after": field.after,
                "effect": effect,
            }
    for drift in plan.drift:
        yield {
            "sign": "!",
            "address": drift.address,
            "field": drift.setting,
            "before": drift.applied,
            "after": drift.live,
            "effect": "drift",
        }


class _Watching:
    """A word on each setting as it is written; of many, on every hundredth."""

    def __init__(self, plan: Plan, progress: Callable[[int, int], None]) -> None:
        self._progress = progress
        self._all = sum(step.write is not None for step in plan.steps)
        self._done = 0

    def __call__(self, step: Step, what: str) -> None:
        if what not in ("done", "already"):
            return
        self._done += 1
        self._progress(self._done, self._all)
        if self._all <= render.FOLDED:
            say(f"  {step.address}: {'done' if what == 'done' else 'was so already'}")
        elif self._done % 100 == 0 or self._done == self._all:
            say(f"  {self._done:,} of {self._all:,} settings")


def carry_out(
    session: Deployment,
    proposal: Proposal,
    context: CommandContext,
    *,
    yes: bool,
    dry_run: bool = False,
    allow_loss: bool = False,
    why: str = "",
) -> int:
    """Shows the plan, asks, does it; answers the exit code."""
    made = proposal.plan
    if context.output != "json" or dry_run:  # as JSON the plan comes within the result: one document on stdout
        show_plan(made, context)
    if dry_run:
        return 2 if made.steps and made.changes else 0
    if made.steps and not made.refusals and (not made.losses or allow_loss):
        named = bool(context.loaded.sources) or context.options.url is not None
        place = None if named else session.where
        if context.output == "json" and not yes:
            say(render.text(made).rstrip())
        if not ask(context, "Apply this?", yes, removes=removes_by(made), place=place):
            say("emq-ops: nothing was changed")
            return 1
        if context.wiring.archive_remote is not None:
            from emq_ops.cli.looking_archive import prove_store

            prove_store(context)
    with bar(made.kind) as progress:
        applied = session.apply(proposal, allow_loss=allow_loss, why=why, watch=_Watching(made, progress))
    return _told(applied, made, context)


def removes_by(plan: Plan) -> bool:
    """Whether anything goes by it: a policy, a schedule, jobs, records."""
    return plan.kind == "destroy" or any(
        step.op == "delete" or step.loss or step.effect.get("remove") or step.effect.get("trim") for step in plan.steps
    )


def _told(applied: Applied, made: Plan, context: CommandContext) -> int:
    if context.output == "json":
        row = {"revision": applied.revision, "written": applied.written, "plan": render.as_json(made)}
        sys.stdout.write(json.dumps(plain(row), indent=2) + "\n")
    elif applied.revision is None:
        if made.drift or context.output != "table":  # else the plan on stdout says so
            say("emq-ops: nothing to do")
    else:
        say(f"emq-ops: revision {applied.revision} is in force")
    return 0
