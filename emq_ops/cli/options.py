"""GlobalOptions that every command accepts, before or after its noun: file, server, state, archive and output form."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emq_ops.cli.table import look
from emq_ops.protocol.errors import BadInputError

if TYPE_CHECKING:
    from emq_ops.config.contexts import NamedPlace

OUTPUTS = ("table", "json", "jsonl", "csv")

QueueArg = Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE")]
QueuesArg = Annotated[list[str], typer.Argument(help="Queues or globs.", metavar="QUEUE")]
SomeQueues = Annotated[list[str] | None, typer.Argument(help="Queues or globs; all without.", metavar="QUEUE")]
SomeOfQueues = Annotated[str, typer.Argument(help="The queue, a glob, or several between commas.", metavar="QUEUE")]
StreamArg = Annotated[
    str, typer.Argument(help="The stream, or a glob; 'dead' for dead jobs, 'stream:dead' for a stream of that name.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
YesAnyway = Annotated[bool, typer.Option("--yes", "-y", help="As everywhere; nothing is asked here.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")]
ShowPlan = Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")]
Target = Annotated[
    list[str] | None, typer.Option("--target", metavar="QUEUE", help="Only this queue, or glob; repeatable.")
]
Rules = Annotated[
    list[str] | None, typer.Option("--rules", metavar="FILE", help="A file of plan rules, beside the config's.")
]
AllowLoss = Annotated[bool, typer.Option("--allow-loss", help="Also what could lose data.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="A word for the history.")]
ActRate = Annotated[int, typer.Option("--rate", help="At most so many jobs a second.", min=1)]
ActWhy = Annotated[str, typer.Option("--why", help="Recorded with it.")]


@dataclass
class GlobalOptions:
    """The global options as given. `output` is one of OUTPUTS."""

    configs: list[Path] = field(default_factory=list)
    url: str | None = None
    state: str | None = None
    local: str | None = None
    remote: str | None = None
    allow_env: list[str] = field(default_factory=list)
    allow_include: list[str] = field(default_factory=list)
    adds_env: bool = False
    """Whether `allow_env` adds to what is confined elsewhere, and confines nothing by itself."""
    output: str = "table"
    context: str | None = None
    confirm: str | None = None
    chosen: tuple[str, NamedPlace] | None = None
    """The context that says where everything is, with its name."""

    def config_files(self) -> list[Path]:
        """Returns the config files to read, lowest first: those given, else ``config.yaml`` here if it exists, else
        none. With ``--url`` and no ``-c`` no file is read. Raises BadInputError for a file that is not there."""
        if self.configs:
            for path in self.configs:
                if not os.path.isfile(path):
                    raise BadInputError("no such config file", where=str(path), fix="check the path after -c")
            return self.configs
        default = Path("config.yaml")
        return [default] if self.url is None and os.path.isfile(default) else []


def options_of(ctx: typer.Context) -> GlobalOptions:
    """Returns the global options of this run, wherever on the line they stood."""
    root = ctx.find_root()
    if not isinstance(root.obj, GlobalOptions):
        root.obj = GlobalOptions()
    return root.obj


def _store(name: str) -> Callable[..., Any]:
    def callback(ctx: typer.Context, value: Any) -> Any:
        if value not in (None, (), []):
            if name == "output" and value not in OUTPUTS:
                raise BadInputError(f"no output form '{value}'", where="--output", fix=f"one of {', '.join(OUTPUTS)}")
            setattr(options_of(ctx), name, [Path(v) for v in value] if name == "configs" else value)
        return value

    return callback


def _option(text: str, metavar: str, field_name: str, *names: str) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, callback=_store(field_name), rich_help_panel="Everywhere")


def _look(text: str, field_name: str, *names: str) -> Any:
    """A switch of the tables."""

    def callback(value: bool) -> bool:
        if value:
            setattr(look, field_name, True)
        return value

    return typer.Option(*names, help=text, callback=callback, rich_help_panel="Everywhere")


_pattern = typer.Typer(add_completion=False)


@_pattern.command()
def _accept(
    global_configs: Annotated[
        list[str] | None,
        _option("Config file; may be repeated, later ones overlay.", "FILE", "configs", "-c", "--config"),
    ] = None,
    global_url: Annotated[str | None, _option("Server, instead of the config's.", "URL", "url", "--url")] = None,
    global_state: Annotated[str | None, _option("State database.", "URL", "state", "--state")] = None,
    global_local: Annotated[str | None, _option("The archive's local database.", "URL", "local", "--local")] = None,
    global_remote: Annotated[str | None, _option("The archive's object store.", "URL", "remote", "--remote")] = None,
    global_allow_env: Annotated[
        list[str] | None,
        _option("A variable that the config may read, and none else; a glob.", "NAME", "allow_env", "--allow-env"),
    ] = None,
    global_allow_include: Annotated[
        list[str] | None,
        _option("Files may be included from there, too.", "DIR", "allow_include", "--allow-include"),
    ] = None,
    global_context: Annotated[
        str | None, _option("A context by its name; `-`: none.", "NAME", "context", "--context")
    ] = None,
    global_confirm: Annotated[
        str | None, _option("What is removed, is removed there: the target's name.", "NAME", "confirm", "--confirm")
    ] = None,
    global_output: Annotated[str | None, _option("table, json, jsonl or csv.", "FORM", "output", "--output")] = None,
    global_wide: Annotated[bool, _look("Tables with all their columns, however wide.", "wide", "--wide")] = False,
    global_quiet: Annotated[bool, _look("Only what failed.", "quiet", "-q", "--quiet")] = False,
    global_verbose: Annotated[bool, _look("Nothing folded, and why.", "verbose", "-v", "--verbose")] = False,
    global_utc: Annotated[bool, _look("Tables with instants as UTC, not in words.", "utc", "--utc")] = False,
) -> None:
    pass


def new_app(text: str | None = None) -> typer.Typer:
    """A Typer for one noun's module."""
    return typer.Typer(help=text, add_completion=False, no_args_is_help=text is not None, rich_markup_mode=None)


def global_options() -> list[Any]:
    """Fresh option objects, one set a command; their callbacks store what was given, so commands don't see them."""
    options = [p for p in typer.main.get_command(_pattern).params if (p.name or "").startswith("global_")]
    for option in options:
        option.expose_value = False
    return options
