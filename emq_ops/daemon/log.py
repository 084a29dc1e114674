"""Events as log lines on stderr, by structlog: text for people, JSON for collectors."""

from __future__ import annotations

import sys
from typing import Any

import structlog

from emq_ops.passes.events import Event
from emq_ops.protocol.errors import one_line
from emq_ops.protocol.terminal import takes_colour

LOUD = frozenset(
    {"alerted", "task_failed", "server_lost", "lease_lost", "state_fault", "queue_refused", "task_missed"}
    | {"revision_refused", "restart_needed"}
)
QUIET = frozenset({"pass_started", "slice_swept", "slice_trimmed", "died", "stream_archived"})
"""Said only when asked for everything."""
DONE = "done"
"""How a pass ends that needs no line of its own: the minute's summary counts it."""


class EventLog:
    """Writes one line an event. `form`: ``text`` or ``json``; `verbose`: every event."""

    def __init__(self, form: str = "text", *, verbose: bool = False, colour: bool | None = None) -> None:
        self.verbose = verbose
        painted = takes_colour(sys.stderr) if colour is None else colour
        renderer: Any = (
            structlog.processors.JSONRenderer()
            if form == "json"
            else structlog.dev.ConsoleRenderer(colors=painted, pad_event_to=18)
        )
        self._logger = structlog.wrap_logger(
            structlog.PrintLogger(sys.stderr),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                renderer,
            ],
        )

    def __call__(self, event: Event) -> None:
        """Writes `event`, unless it is of no interest."""
        facts = {
            k: _plain(v)
            for k, v in event.facts().items()
            if k != "tally" and v not in (None, "", {}, []) and not (k == "queue" and v == "*")
        }
        if not self.verbose and _ordinary(event.name, facts):
            return
        if event.name == "pass_ended" and facts.get("status") == "failed":
            self._logger.error(event.name, **facts)
        elif event.name in LOUD:
            self._logger.warning(event.name, **facts)
        else:
            self._logger.info(event.name, **facts)

    def say(self, text: str, **facts: Any) -> None:
        """A word that is no event."""
        self._logger.info(one_line(text), **{name: _plain(value) for name, value in facts.items()})


def _ordinary(name: str, facts: dict[str, Any]) -> bool:
    """Whether it is said only when asked for everything."""
    if name == "lease_taken":
        return "took_over" not in facts
    return name in QUIET or (name == "pass_ended" and facts.get("status") == DONE)


def _plain(value: Any) -> Any:
    """Texts of strangers can't steer a terminal or break a line."""
    if isinstance(value, dict):
        return {_plain(name): _plain(below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    return one_line(value) if isinstance(value, str) else value
