"""The tree of commands as completion needs it: verbs, options, and what kind of word each value and argument is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from emq_ops.cli.options import OUTPUTS, global_options
from emq_ops.cli.root import root_group

FILES, NOTHING = "files", ""
_KINDS = {
    "QUEUE": "queues",
    "RUN": "runs",
    "PLAYBOOK": "playbooks",
    "SHELL": "bash zsh fish",
    **dict.fromkeys(("FILE", "DIR", "FOLDER"), FILES),
}
_CONTEXT_VERBS = ("use", "rm")


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command or a noun with verbs. `path`: its words; `valued`: option -> the kind of its value, or its choices with
    blanks between; `argument`: the kind of its arguments."""

    path: tuple[str, ...]
    verbs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    valued: dict[str, str] = field(default_factory=dict)
    argument: str = NOTHING


def entries() -> tuple[list[CommandEntry], dict[str, str]]:
    """All commands, the root first, and the options that stand anywhere and take a value."""
    root = root_group()
    anywhere = {name: _kind(option) for option in global_options() for name in option.opts}
    return list(_walk(root, (), set(anywhere))), anywhere


def _walk(command: Any, path: tuple[str, ...], anywhere: set[str]) -> Iterator[CommandEntry]:
    names = command.list_commands(None) if hasattr(command, "list_commands") else ()
    children = {name: command.get_command(None, name) for name in names}
    shown = tuple(name for name, child in children.items() if child is not None and not child.hidden)
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    taking = [option for option in options if not _is_flag(option)]
    valued = {name: _kind(option) for option in taking for name in option.opts if name not in anywhere}
    argument = next((_kind(one) for one in arguments if _kind(one)), NOTHING)
    if path[:1] == ("context",) and path[-1] in _CONTEXT_VERBS:
        argument = "contexts"
    named = {name for option in options for name in option.opts} | anywhere | {"--help"}
    long = sorted(name for name in named if name.startswith("--"))
    yield CommandEntry(path, shown, tuple(long), valued, argument)
    for name in shown:
        yield from _walk(children[name], (*path, name), anywhere)


def _is_flag(option: Any) -> bool:
    return bool(option.is_flag or getattr(option, "count", False))


def _kind(param: Any) -> str:
    if "--output" in param.opts:
        return " ".join(OUTPUTS)
    if "--context" in param.opts or "--confirm" in param.opts:
        return "contexts"
    metavar = param.metavar or ""
    if "|" in metavar and metavar.replace("|", "").replace("-", "").islower():
        return metavar.replace("|", " ")
    return _KINDS.get(metavar.strip("[]."), NOTHING)
