"""The options that say which waiting jobs a command is about: the same ones for every command."""

from __future__ import annotations

from typing import Annotated

import typer

JobIds = Annotated[list[str] | None, typer.Argument(help="Jobs, by their ids.", metavar="JOB")]
OfQueues = Annotated[list[str] | None, typer.Option(help="Of these; a glob; repeatable.", metavar="QUEUE")]
Where = Annotated[str, typer.Option(help="A condition, as in `when`.", metavar="CONDITION")]
States = Annotated[str, typer.Option(help="waiting, scheduled, or both with a comma.", metavar="STATE")]
MintedAfter = Annotated[
    str | None, typer.Option("--minted-after", help="10:00 (UTC), or 2026-03-01T10:00:00Z.", metavar="INSTANT")
]
MintedBefore = Annotated[
    str | None, typer.Option("--minted-before", help="Likewise; that instant is not in it.", metavar="INSTANT")
]
Resumed = Annotated[str | None, typer.Option("--resume", help="Go on with a run that ended early.", metavar="RUN")]
