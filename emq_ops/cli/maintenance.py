"""``emq-ops maintenance``: windows in which stalls do not count."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.many import QueueTurns
from emq_ops.cli.options import SomeQueues, new_app
from emq_ops.cli.output import say, tell_old
from emq_ops.cli.queues import chosen
from emq_ops.cli.values import duration_ms
from emq_ops.config.windows import windows
from emq_ops.ledger import holds
from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.holder import who
from emq_ops.passes.lease.owner import LeaseInfo, foreign_queues, lease_infos, led_queues
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.globs import is_glob, literal, select
from emq_ops.protocol.server import Server

app = new_app("Windows in which lapsed leases are recovered without counting: deploys, migrations.")

COLUMNS = ("id", "queues", "start_ms", "end_ms", "open", "holder", "why")


def _row(window: Window, now_ms: int) -> dict[str, Any]:
    return {**window.as_row(), "open": window.start_ms <= now_ms < window.end_ms}


def _checked(context: CommandContext, server: Server, selector: str) -> str:
    """`selector`, if it is ``*`` or takes a queue. Raises BadInputError."""
    if selector != "*":
        chosen(context, [selector], {*server.queues(), *context.layers.literals}, server)
    return selector


def _check_owners(server: Server, ledger: Ledger, selector: str) -> None:
    """Raises ForeignQueueError where none of the queues is ours; says which are not."""
    names = led_queues(server)
    wanted = select(selector, names) if is_glob(selector) else sorted({*names} & {literal(selector)})
    leases = {queue: found for queue, found in lease_infos(server, wanted).items() if isinstance(found, LeaseInfo)}
    foreign = foreign_queues(ledger, leases)
    if foreign and len(foreign) == len(leases):
        raise next(iter(foreign.values()))
    for fault in foreign.values():
        say(f"emq-ops: the window does not hold there: {fault}")


def _selectors(queues: list[str] | None, old: str | None, verb: str) -> list[str]:
    """What the windows are for, as it is written."""
    if old is not None:
        tell_old("--queues GLOB", f"emq-ops maintenance {verb} QUEUE")
    return [*(queues or ()), *([old] if old is not None else ())]


def _now(server: Server) -> int:
    seconds, micros = server.read("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


@app.command()
def start(
    ctx: typer.Context,
    queues: SomeQueues = None,
    length: Annotated[str | None, typer.Option("--for", help="How long (5m).", metavar="DURATION")] = None,
    old: Annotated[str | None, typer.Option("--queues", metavar="GLOB", hidden=True)] = None,
    why: Annotated[str, typer.Option(help="For whoever asks.")] = "",
) -> None:
    """Open a window, from now.

    Examples:

      emq-ops maintenance start --for 5m

      emq-ops maintenance start 'mail-*' orders --for 1h --why 'moving hosts'
    """
    context, wanted = CommandContext.of(ctx), _selectors(queues, old, "start") or ["*"]
    ms = duration_ms(length, "--for")
    if not ms:
        raise BadInputError("for how long?", where="maintenance start", fix="--for 5m")
    with context.server("maintenance") as server, context.ledger() as ledger:
        now = _now(server)
        for selector in wanted:
            _check_owners(server, ledger, _checked(context, server, selector))
        with QueueTurns(context, COLUMNS, many=len(wanted) > 1) as turns:
            for selector in wanted:
                window = holds.open_window(ledger, Window(selector, now, now + ms, holder=who(), why=why))
                with turns.turn():
                    turns.add(_row(window, now))


@app.command()
def stop(
    ctx: typer.Context,
    queues: Annotated[
        list[str] | None, typer.Argument(help="Just those opened for this queue or glob.", metavar="QUEUE")
    ] = None,
    old: Annotated[str | None, typer.Option("--queues", metavar="GLOB", hidden=True)] = None,
) -> None:
    """Close the windows that are open now.

    Examples:

      emq-ops maintenance stop

      emq-ops maintenance stop 'mail-*'
    """
    context, wanted = CommandContext.of(ctx), _selectors(queues, old, "stop")
    with context.server("maintenance") as server, context.ledger() as ledger:
        now, closed = _now(server), []
        for selector in wanted or ["*"]:
            _check_owners(server, ledger, selector)
        every: list[str | None] = [*wanted] or [None]
        for one in every:
            found = holds.close_windows(ledger, now, one)
            if not found and one is not None:
                _checked(context, server, one)
            closed += found
    context.emit_rows([_row(window, now) | {"end_ms": now, "open": False} for window in closed], COLUMNS)
    if not closed:
        say("emq-ops: no window was open")


@app.command()
def ls(ctx: typer.Context) -> None:
    """List the windows, the config's included.

    Examples:

      emq-ops maintenance ls

      emq-ops maintenance ls --output json
    """
    context = CommandContext.of(ctx)
    with context.server("maintenance") as server, context.ledger() as ledger:
        now = _now(server)
        sections = context.loaded.config.maintenance
        rows = [_row(window, now) for window in (*holds.all_windows(ledger), *windows(sections, now))]
    context.emit_rows(rows, COLUMNS)
