"""``emq-ops alert``: which rules hold, silences."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.cli.values import duration_ms, now_ms
from emq_ops.config.alert_conditions import USUAL
from emq_ops.ledger import alert_states
from emq_ops.ledger.alert_states import AlertState, Silence
from emq_ops.passes.lease.holder import who
from emq_ops.policy.words import did_you_mean
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.globs import is_glob

COLUMNS = ("rule", "queue", "state", "since_ms", "told_ms", "silent_until_ms", "silenced_by", "why")
SILENCES = ("id", "rules", "queues", "since_ms", "until_ms", "holder", "why")


def _row(state: AlertState, silences: list[Silence]) -> dict[str, Any]:
    standing = [one for one in silences if one.covers(state.rule, state.queue)]
    last = max(standing, key=lambda one: one.until_ms, default=None)
    return {
        "rule": state.rule,
        "queue": state.queue,
        "state": "pending" if state.firing_ms is None else "firing",
        "since_ms": state.since_ms,
        "told_ms": state.told_ms,
        "silent_until_ms": None if last is None else last.until_ms,
        "silenced_by": None if last is None else last.holder,
        "why": None if last is None else last.why,
    }


def _now(context: CommandContext) -> int:
    """The server's clock, by which daemons judge; this host's while the server is away."""
    try:
        with context.server("alert") as server:
            seconds, micros = server.read("TIME")
    except EmqError:
        return now_ms()
    return int(seconds) * 1000 + int(micros) // 1000


def ls(
    ctx: typer.Context,
    silences: Annotated[bool, typer.Option("--silences", help="The silences that stand, instead.")] = False,
) -> None:
    """List the rules that hold, queue by queue: pending until they have held for long enough, then firing.

    Examples:

      emq-ops alert ls

      emq-ops alert ls --silences
    """
    context = CommandContext.of(ctx)
    with context.ledger() as ledger:
        standing = alert_states.silences(ledger, _now(context))
        if silences:
            context.emit_rows([one.as_row() for one in standing], SILENCES)
            return
        context.emit_rows([_row(state, standing) for state in alert_states.states(ledger)], COLUMNS)


def silence(
    ctx: typer.Context,
    rules: Annotated[str, typer.Argument(help="A rule's name, or a glob.", metavar="RULE")],
    queues: Annotated[str, typer.Argument(help="A queue or a glob.", metavar="QUEUE")] = "*",
    length: Annotated[str | None, typer.Option("--for", help="How long (2h).", metavar="DURATION")] = None,
    why: Annotated[str, typer.Option(help="For whoever asks.")] = "",
) -> None:
    """Tell nothing of a rule for a while; it is judged all the same, and told at the end if it holds yet.

    Examples:

      emq-ops alert silence archive_behind --for 2h --why 'the store is being moved'

      emq-ops alert silence '*' 'mail-*' --for 30m --why 'known, incident 7'
    """
    context = CommandContext.of(ctx)
    ms = duration_ms(length, "--for")
    if not ms:
        raise BadInputError("for how long?", where="alert silence", fix="--for 2h")
    if not why:
        raise BadInputError(
            "why?", where="alert silence", fix="--why 'incident 7': whoever wonders at the silence reads it"
        )
    with context.ledger() as ledger:
        named = {*USUAL, *(rule.name for rule in context.loaded.config.alert_rules)}
        named |= {state.rule for state in alert_states.states(ledger)}
        if rules not in named and not is_glob(rules):
            raise BadInputError(f"no rule '{rules}'", where="alert silence", fix=did_you_mean(rules, sorted(named)))
        now = _now(context)
        number = alert_states.silence(ledger, Silence(rules, queues, now, now + ms, who(), why))
    context.emit_one({"id": number, "rules": rules, "queues": queues, "until_ms": now + ms, "why": why})
    say(f"to take it back: emq-ops alert unsilence {number}")


def unsilence(
    ctx: typer.Context,
    number: Annotated[int, typer.Argument(help="As `alert ls --silences` has it.", metavar="ID")],
) -> None:
    """End a silence.

    Examples:

      emq-ops alert unsilence 3

      emq-ops alert unsilence 3 --output json
    """
    context = CommandContext.of(ctx)
    with context.ledger() as ledger:
        if not alert_states.end_silence(ledger, number):
            raise BadInputError(f"no silence {number}", where="alert unsilence", fix="emq-ops alert ls --silences")
    context.emit_one({"id": number, "status": "ended"})
