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
from emq_ops.cli.values import duration_ms
from emq_ops.ledger import interruptions
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts import WHY_LEFT, ActReport
from emq_ops.passes.selection import Selection
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.server import Server

if TYPE_CHECKING:
    from emq_ops.audit.archived import Archived

Queues = Annotated[list[str] | None, typer.Argument(help="Queues or globs; all without.", metavar="QUEUE")]
Html = Annotated[
    str | None, typer.Option("--html", help="Write one self-contained page; - for stdout.", metavar="FILE")
]

_MANY = 500


def selection_of(
    *,
    causes: Sequence[str] | None,
    errors: Sequence[str] | None,
    older: str | None,
    newer: str | None,
    jobs: Sequence[str] | None,
    payload: str | None,
    interruption: int | None,
    killed_by: str | None,
) -> Selection:
    """The filters of a command line. An empty one is an error, never "any". Raises BadInputError."""
    texts = {"--payload": payload, "--pass": killed_by, "--older": older, "--newer": newer}
    for name, text in texts.items():
        if text is not None and not text.strip():
            raise BadInputError(f"{name} is empty", fix="leave it out to take any")
    return Selection(
        causes=tuple(causes or ()),
        errors=tuple(errors or ()),
        older_ms=duration_ms(older, "--older"),
        newer_ms=duration_ms(newer, "--newer"),
        jobs=tuple(jobs or ()),
        payload=(payload or "").encode("utf-8", "surrogateescape"),
        interruption=interruption,
        killed_by=killed_by,
    )


def queues_of(
    context: CommandContext, server: Server, selectors: Sequence[str] | None, ledger: Ledger | None = None
) -> list[str]:
    """The queues that a command is about: see `chosen`. With a ledger also those that the server lost."""
    live = {*server.queues(), *(interruptions.known_queues(ledger) if ledger is not None else ())}
    return chosen(list(selectors or []), live, context.layers.literals)


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
    try:
        Path(target).write_text(page, "utf-8")
    except OSError as fault:
        raise BadInputError(f"can't write the page: {fault.strerror}", where=target) from None
    say(f"page: {target}")


def tell(report: ActReport) -> None:
    """An act in words, on stderr."""
    would = "would be " if report.status == "dry" else ""
    count = report.selected - sum(report.left.values()) if report.status == "dry" else report.done
    word = {"requeue": "requeued", "remove": "removed"}.get(report.kind, "brought back")
    left = "".join(f"; {n} {code} ({WHY_LEFT.get(code, code)})" for code, n in sorted(report.left.items()))
    run = f" (run {report.run})" if report.run else ""
    say(f"{report.queue}: {count} {would}{word}{left}{run}")
    for note in report.notes:
        say(f"emq-ops: {one_line(note)}")
