"""What `emq-ops play` prints about the language itself: schema, modules, task lists."""

from __future__ import annotations

import json
import sys
from typing import Any

from emq_ops.cli.output import emit_rows
from emq_ops.playbook.model import Playbook
from emq_ops.playbook.modules import MODULES
from emq_ops.playbook.registry import Module
from emq_ops.playbook.schema import schema
from emq_ops.playbook.select import TaskSelection
from emq_ops.policy.words import did_you_mean
from emq_ops.protocol.errors import BadInputError


def print_schema() -> None:
    """The JSON Schema, on stdout."""
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")


def module_row(module: Module) -> dict[str, Any]:
    """A module's documentation as plain data."""
    return {
        "module": module.name,
        "summary": module.summary,
        "check": module.check,
        "destructive": module.destructive,
        "options": [
            {
                "name": option.name,
                "type": option.type.words,
                "required": option.required,
                "default": option.shown_default,
                "choices": list(option.choices),
                "doc": option.doc,
            }
            for option in module.options
        ],
        "returns": dict(module.returns),
    }


def print_modules(name: str | None, output: str) -> None:
    """All modules, a line each, or one of them whole. Raises BadInputError for a name that is none."""
    if name is None:
        columns = ("module", "summary", "check")
        rows = [module_row(module) for module in MODULES.values()]
        rows.append({"module": "include", "summary": "Takes in a file of tasks, as a block.", "check": "as its tasks"})
        emit_rows(rows, output, columns)
        return
    module = MODULES.get(name)
    if module is None:
        raise BadInputError(f"there is no module '{name}'", where="--modules", fix=did_you_mean(name, MODULES))
    if output != "table":
        emit_rows([module_row(module)], output, ("module", "summary", "check"))
        return
    sys.stdout.write("\n".join(_page(module)) + "\n")


def _page(module: Module) -> list[str]:
    lines = [f"{module.name}: {module.summary}", f"  check mode: {module.check}"]
    if module.destructive:
        lines.append("  destructive: asks unless --yes, refused where `protect: true`, bounded by max_removals")
    if module.free:
        lines.append("  options: any names and values")
    elif module.options:
        lines.append("  options:")
    for option in module.options:
        default = option.shown_default
        kind = "required" if option.required else "" if default is None else f"default {_shown(default)}"
        choices = f"one of {', '.join(option.choices)}" if option.choices else option.type.words
        note = "; ".join(part for part in (choices, kind) if part)
        bare = ", may stand alone" if option.name == module.primary else ""
        lines.append(f"    {option.name}: {option.doc} ({note}{bare})")
    if module.returns:
        lines.append("  returns, beside changed, failed, skipped, msg and count:")
        lines += [f"    {name}: {text}" for name, text in module.returns.items()]
    return lines


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def task_rows(playbook: Playbook, selection: TaskSelection) -> list[dict[str, Any]]:
    """The tasks that a selection takes, in reading order; handlers too."""
    rows = []
    for play, task in playbook.tasks():
        if not selection.takes(task):
            continue
        queues = play.queues.data()
        rows.append(
            {
                "play": play.name,
                "queues": queues if isinstance(queues, str) else ", ".join(queues),
                "task": task.name,
                "module": task.module.name,
                "tags": ", ".join(sorted(task.tags)),
                "where": str(task.pos),
                "handler": task in play.handlers,
            }
        )
    return rows
