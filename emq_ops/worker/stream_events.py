"""What a stream consumer tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emq_ops.worker.events import WorkerEvent

EntryOutcome = Literal["handled", "failed", "dead", "gone", "lost"]


@dataclass(frozen=True, slots=True)
class EntrySettled(WorkerEvent):
    """An entry left the handler. ``failed``: it comes again once it is idle; ``dead``: it is on the dead-letter stream;
    ``gone``: it was trimmed before anybody handled it, and is acknowledged; ``lost``: another consumer has it by now.
    `entry`: its ``EVT`` id; `attempts`: how often it was delivered."""

    stream: str
    entry: str
    attempts: int
    outcome: EntryOutcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StreamReport(WorkerEvent):
    """How a run went, in entries; see EntrySettled."""

    handled: int
    failed: int
    dead: int
    gone: int
    lost: int


def describe_entry(event: EntrySettled) -> str:
    """Returns one line for an operator. May hold the text of strangers."""
    text = f": {event.detail[:200]}" if event.detail else ""
    return f"{event.stream} {event.entry} {event.outcome}, delivery {event.attempts}{text}"
