"""``emq-ops alert test``: whether the messengers take what is sent to them."""

from __future__ import annotations

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.output import say
from emq_ops.config.hosts import messenger_for
from emq_ops.config.messenger import send
from emq_ops.passes.lease.holder import who
from emq_ops.policy.secrets import hide
from emq_ops.protocol.errors import EmqError

TESTED = ("alert", "taken", "error")


def send_test(ctx: typer.Context) -> None:
    """Send a message to each messenger of the config, and say which took it.

    Examples:

      emq-ops alert test

      emq-ops alert test --output json
    """
    context, rows = CommandContext.of(ctx), []
    for section in context.require_config().config.alerts:
        error: str | None = None
        taken = False
        try:
            messenger = messenger_for(section.url, context.env)
            taken = messenger is not None and send(messenger, "emq-ops: test", f"a test of alerts, by {who()}")
            error = None if taken else "it was not taken"
        except EmqError as fault:
            error = str(fault)
        except Exception as fault:  # noqa: BLE001 - whatever a messenger raises; its words may hold the whole URL
            error = type(fault).__name__
        rows.append({"alert": hide(section.url), "taken": taken, "error": error})
    context.emit_rows(rows, TESTED)
    if not rows:
        say("emq-ops: the config has no `alerts`: nobody would be told")
    if not rows or any(not row["taken"] for row in rows):
        raise typer.Exit(EXIT_ERROR)
