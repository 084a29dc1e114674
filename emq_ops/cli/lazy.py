"""Groups of commands from a table: the module of a command is imported when the command is asked for, and no other."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from emq_ops.cli.naming import name_value
from emq_ops.cli.options import global_options, new_app

Table = Mapping[str, tuple[str | Callable[[], typer.Typer], str]]
"""By the words that call a command: where it is, and the first sentence of its help.

Where: a module under ``emq_ops.cli`` that holds `app`, a Typer; or ``module:function``; or what makes a Typer; or ''
for a noun whose verbs have entries of their own: ``queue``, ``queue ls``."""


class Commands(Mapping[str, Any]):
    """The commands of a table below `words`, each made once it is asked for."""

    def __init__(self, table: Table, words: str = "") -> None:
        self._table = table
        self._below = {}
        for key in table:
            above, _, name = key.rpartition(" ")
            if above == words:
                self._below[name] = key
        self._made: dict[str, Any] = {}

    def summaries(self) -> list[tuple[str, str]]:
        """Each name with the first sentence of its help; nothing is imported."""
        return [(name, self._table[key][1]) for name, key in sorted(self._below.items())]

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            made = self._made[name] = self._make(name, *self._table[self._below[name]])
            made.name = name
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._below))

    def __len__(self) -> int:
        return len(self._below)

    def _make(self, name: str, where: str | Callable[[], typer.Typer], summary: str) -> Any:
        if where == "":
            return LazyGroup(name=name, commands=Commands(self._table, self._below[name]), help=summary)
        if isinstance(where, str):
            module, _, function = where.partition(":")
            found = getattr(importlib.import_module(f"emq_ops.cli.{module}"), function or "app")
            if function:
                app = new_app()
                app.command()(found)
                found = app
        else:
            found = where()
        made = typer.main.get_command(found)
        add_globals(made)
        return made


class LazyGroup(TyperGroup):
    """A group of `Commands`. Without a verb it shows its help."""

    commands: Any

    def __init__(self, *, commands: Commands, **more: Any) -> None:
        super().__init__(no_args_is_help=True, rich_markup_mode=None, **more)
        self.commands = commands

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        return self.commands.get(cmd_name)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """The names of the help, without importing what they name."""
        with formatter.section("Commands"):
            formatter.write_dl(self.commands.summaries())

    def invoke(self, ctx: Any) -> Any:
        """Ctrl-C leaves as an Abort: typer itself would end without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


def add_globals(command: Any) -> None:
    """Gives `command`, or every leaf below it, the global options."""
    children = getattr(command, "commands", None)
    if children is None or not children:
        for param in command.params:
            name_value(param)
        # A command's own word comes first: `job remove --state waiting`; the database is named before the noun then.
        own = {name for param in command.params for name in param.opts}
        command.params.extend(one for one in global_options() if not own & set(one.opts))
        return
    for child in children.values():
        add_globals(child)
