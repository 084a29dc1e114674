"""What plan, apply, drift, history, rollback and destroy stand on: an open session, plans shown, questions asked."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from emq_ops.cli.context import Globals
from emq_ops.cli.output import emit_rows, plain, say
from emq_ops.cli.settings import loaded_of, wiring_of
from emq_ops.config.wiring import Wiring
from emq_ops.deploy import render, revisions
from emq_ops.deploy.apply import Applied
from emq_ops.deploy.model import SIGNS, Plan, Step
from emq_ops.deploy.session import Proposal, Session
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.protocol.errors import BadInputError

COLUMNS = ("sign", "address", "field", "before", "after", "effect")


@contextlib.contextmanager
def ledger_of(options: Globals) -> Iterator[tuple[Ledger, Wiring]]:
    """The state alone, for commands that need no server. Its file may be gone: then ``--state`` names it."""
    wiring = wiring_of(options)
    with open_ledger(wiring.state_url) as ledger:
        yield ledger, wiring


@contextlib.contextmanager
def session_of(options: Globals, verb: str) -> Iterator[Session]:
    """Server and state. Where no file and no ``--url`` says which server, the revision in force does."""
    loaded = loaded_of(options)
    wiring = wiring_of(options, loaded)
    with open_ledger(wiring.state_url) as ledger:
        server = wiring
        if not loaded.sources and options.url is None:
            applied = revisions.current(ledger)
            if applied is not None:
                server = applied.document.wiring(os.environ)
        with server.connect(verb) as opened:
            yield Session(opened, ledger, wiring)


def wants_colour() -> bool:
    """Whether text on stdout may be coloured: a terminal, and nobody objects (``NO_COLOR``)."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def show_plan(plan: Plan, output: str, *, markdown: bool = False) -> None:
    """The plan on stdout, in the form that was asked for."""
    if markdown:
        sys.stdout.write(render.markdown(plan))
    elif output == "json":
        sys.stdout.write(json.dumps(plain(render.as_json(plan)), indent=2) + "\n")
    elif output in ("jsonl", "csv"):
        emit_rows(_rows(plan), output, COLUMNS)
    else:
        sys.stdout.write(render.text(plan, colour=wants_colour()))
    sys.stdout.flush()


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


def ask(question: str, yes: bool) -> bool:
    """Whether to go on. Without a terminal to ask on, only ``--yes`` says so."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise BadInputError("nobody to ask", fix="--yes, or a saved plan")
    return bool(typer.confirm(question, err=True))


def watch(step: Step, what: str) -> None:
    """A word on each setting as it is written."""
    if what in ("done", "already"):
        say(f"  {step.address}: {'done' if what == 'done' else 'was so already'}")


def carry_out(
    session: Session,
    proposal: Proposal,
    options: Globals,
    *,
    yes: bool,
    dry_run: bool = False,
    allow_loss: bool = False,
    why: str = "",
) -> int:
    """Shows the plan, asks, does it; answers the exit code."""
    made = proposal.plan
    if options.output != "json" or dry_run:  # as JSON the plan comes within the result: one document on stdout
        show_plan(made, options.output)
    if dry_run:
        return 2 if made.steps else 0
    if made.steps and not made.refusals and (not made.losses or allow_loss):
        if options.output == "json" and not yes:
            say(render.text(made).rstrip())
        if not ask("Apply this?", yes):
            say("emq-ops: nothing was changed")
            return 1
    applied = session.apply(proposal, allow_loss=allow_loss, why=why, watch=watch)
    return _told(applied, made, options)


def _told(applied: Applied, made: Plan, options: Globals) -> int:
    if options.output == "json":
        row = {"revision": applied.revision, "written": applied.written, "plan": render.as_json(made)}
        sys.stdout.write(json.dumps(plain(row), indent=2) + "\n")
    elif applied.revision is None:
        if made.drift or options.output != "table":  # else the plan on stdout says so
            say("emq-ops: nothing to do")
    else:
        say(f"emq-ops: revision {applied.revision} is in force")
    return 0


def file_of(text: str) -> Path:
    """A path of the command line."""
    if not text:
        raise BadInputError("an empty path")
    return Path(text)
