"""What conditions of alert rules may say: names, and how they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emq_ops.policy.words import nearest
from emq_ops.syntax.errors import Position, SourceError

if TYPE_CHECKING:
    from emq_ops.syntax.expressions import Condition

OF_SERVER = ("memory", "without_leader", "overdue")
"""``server.memory``: of the fullest node, as a part of its limit (0 without one); ``server.without_leader``: queues
that nobody leads; ``server.overdue``: tasks of this host whose run is overdue."""
OF_QUEUE = (
    *("waiting", "active", "scheduled", "dead", "lanes", "lanes_full", "lanes_paused", "aside", "lapsed", "overdue"),
    *("oldest_waiting", "oldest_lease", "repeatable_overdue", "archive_lag", "paused", "held", "failures", "drift"),
)
"""Counts; ages and lags from ``oldest_waiting`` to ``archive_lag``, ms; switches; failures in a row of the task that
has most; settings that are not as applied."""
NAMES = ("queue", "server", *OF_QUEUE)

_MINUTE_MS = 60_000
USUAL: dict[str, dict[str, Any]] = {
    "archive_behind": {
        "when": "archive_lag > 30m",
        "lasting_ms": 10 * _MINUTE_MS,
        "say": "the archive is behind: emq-ops archive status",
    },
    "server_memory": {
        "when": "server.memory > 90%",
        "lasting_ms": 5 * _MINUTE_MS,
        "severity": "page",
        "say": "writes are refused when it is full: emq-ops top; emq-ops trim, or raise maxmemory",
    },
    "pass_failing": {"when": "failures >= 3", "say": "a pass fails again and again: emq-ops ps says why"},
    "no_leader": {
        "when": "server.without_leader > 0",
        "lasting_ms": 2 * _MINUTE_MS,
        "severity": "page",
        "say": "their passes do not run: emq-ops ps; emq-ops up",
    },
    "drift_stands": {"when": "drift > 0", "lasting_ms": 60 * _MINUTE_MS, "say": "emq-ops drift shows it"},
}
"""Rules that hold where the YAML has none of that name; ``when: "false"`` switches one off."""


def condition(text: str, mark: Position) -> Condition:
    """What a rule's `when` says. Raises SourceError with line and column."""
    from emq_ops.syntax.expressions import Condition  # and jinja2: few commands meet a rule

    found = Condition.read(text, mark, NAMES)
    known = {"server": OF_SERVER, "queue": ("name",)}
    for name, *fields in found.compiled.reads if found.compiled else ():
        if name in known and (not fields or fields[0] not in known[name]):
            asked = ".".join((name, *fields[:1]))
            near = nearest(fields[0], known[name]) if fields else None
            fix = f"did you mean '{name}.{near}'?" if near else f"there are: {', '.join(known[name])}"
            raise SourceError(f"unknown name '{asked}'", mark, fix=fix)
        if name in OF_QUEUE and fields:
            raise SourceError(f"unknown name '{name}.{fields[0]}'", mark, fix=f"'{name}' is a plain value")
    return found
