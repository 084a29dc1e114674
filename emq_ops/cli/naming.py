"""What the help calls the values of options and arguments: words that say what is meant, alike in every command."""

from __future__ import annotations

from typing import Any

OPTIONS = {
    "--age-by": "seen|minted",
    "--burst": "N",
    "--cause": "CAUSE",
    "--concurrency": "N",
    "--error": "TEXT",
    "--executor": "script|native",
    "--folder": "FOLDER",
    "--groups": "respect|ignore",
    "--interruption": "N",
    "--job": "JOB",
    "--keep": "N",
    "--kind": "KIND",
    "--limit": "N",
    "--max-attempts": "N",
    "--max-exempt": "N",
    "--max-removals": "N",
    "--max-share": "SHARE",
    "--max-stalled": "N",
    "--payload": "TEXT",
    "--queue": "QUEUE",
    "--rate": "N",
    "--reason": "TEXT",
    "--recovery": "reap|stalled|none",
    "--restart": "exempt|count",
    "--seconds": "N",
    "--seed": "N",
    "--serve": "both|flat|lanes",
    "--skip-tags": "TAGS",
    "--tags": "TAGS",
    "--trim-after": "remote|local",
    "--why": "TEXT",
}
"""Options that name no word of their own where they are declared."""


def name_value(param: Any) -> None:
    """Gives an argument or an option that takes a value its word, unless it has one: QUEUE, DURATION, exempt|count."""
    if param.param_type_name == "argument":
        param.metavar = param.metavar or param.name.upper()
        param.display_type_rich = lambda ctx: None  # else the type is written beside it: QUEUE <str>
    elif param.metavar is None and not param.is_flag:
        param.metavar = next((OPTIONS[name] for name in param.opts if name in OPTIONS), None)
