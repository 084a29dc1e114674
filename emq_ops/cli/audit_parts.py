"""What the audit commands share: selections, queues and archive of a command line, and where a page goes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.cli.queues import chosen
from emq_ops.ledger import interruptions
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.report import WHY_LEFT, ActReport
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.files import written
from emq_ops.protocol.server import Server

if TYPE_CHECKING:
    from emq_ops.audit.archived import Archived

Queues = Annotated[list[str] | None, typer.Argument(help="Queues or globs; all without.", metavar="QUEUE")]
Html = Annotated[
    str | None, typer.Option("--html", help="Write one self-contained page; - for stdout.", metavar="FILE")
]

_MANY = 500


def queues_of(
    context: CommandContext, server: Server, selectors: Sequence[str] | None, ledger: Ledger | None = None
) -> list[str]:
    """The queues that a command is about: see `chosen`. With a ledger also those that the server lost."""
    live = {*server.queues(), *(interruptions.contacted_queues(ledger) if ledger is not None else ())}
    return chosen(context, selectors or (), {*live, *context.layers.literals}, server)


def longest_lease(context: CommandContext, queues: Sequence[str]) -> int:
    """The longest lease that the config says of these queues, ms."""
    return max((context.stalled(queue).lease_ms for queue in queues[:_MANY]), default=30_000)


@contextlib.contextmanager
def archive_of(context: CommandContext, server: Server | None = None) -> Iterator[Archived | None]:
    """The archive as configured, None where there is none; with `server` its streams' live tails too."""
    if context.wiring.archive_local is None:
        yield None
        return
    from emq_ops.audit.archived import Archived  # and pyarrow: just where there is an archive

    with contextlib.ExitStack() as stack:
        local = stack.enter_context(context.local_for_a_look())
        remote = stack.enter_context(context.remote()) if context.wiring.archive_remote is not None else None
        yield Archived(local, remote, server)


def check_page(target: str | None, output: str) -> None:
    """Refuses (BadInputError), before anything is done, a page that can't be put where it is wanted."""
    if target == "-" and output != "table":
        raise BadInputError(f"--html - and --output {output} both want stdout", fix="write the page to a file")
    if target in (None, "-"):
        return
    if not Path(target).parent.is_dir():
        raise BadInputError("can't write the page: no such directory", where=target)
    if Path(target).is_dir():
        raise BadInputError("can't write the page: it is a directory", where=target, fix="name a file")


def put_page(page: str, target: str) -> None:
    """Writes a page to a file, or to stdout (``-``)."""
    if target == "-":
        sys.stdout.write(page)
        return
    with written(Path(target)) as file:
        file.write(page)
    say(f"page: {target}")


DONE_WORDS = {"requeue": "requeued", "remove": "removed", "drain": "removed", "move": "moved", "edit": "edited"}
"""What an act did to its jobs."""


def format_act(report: ActReport) -> list[str]:
    """An act in words, a line each."""
    would = "would be " if report.status == "dry" else ""
    count = report.selected - sum(report.left.values()) if report.status == "dry" else report.done
    word = DONE_WORDS.get(report.kind, "brought back")
    left = "".join(f"; {n} {code} ({WHY_LEFT.get(code, code)})" for code, n in sorted(report.left.items()))
    run = f" (run {report.run})" if report.run else ""
    return [
        f"{report.queue}: {count} {would}{word}{left}{run}",
        *(f"emq-ops: {one_line(note)}" for note in report.notes),
    ]


def show_act(context: CommandContext, report: ActReport) -> None:
    """An act in words on stderr, and, where not a table is wanted, its report on stdout."""
    say("\n".join(format_act(report)))
    if context.output != "table":
        context.emit_one(report.as_row())
