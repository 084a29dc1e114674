"""Interruptions of many queues that were one event: a server went away once, and every queue has an interruption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.audit.restarts import InterruptionOutcome, iso
from emq_ops.ledger.interruptions import RESTART

NAMED = 3
"""So many queues are named; of more, how many there are."""
SUMS = ("in_flight", "recovered", "exempted", "died", "vanished")


@dataclass(slots=True)
class ServerEvent:
    """One event: what it did to each of its queues, at most one interruption a queue."""

    outcomes: list[InterruptionOutcome] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(self, one: InterruptionOutcome) -> None:
        """One more queue."""
        self.outcomes.append(one)
        self.names.add(one.cut.queue)

    @property
    def started_ms(self) -> int | None:
        """The earliest, of those that know."""
        return min((one.cut.started_ms for one in self.outcomes if one.cut.started_ms is not None), default=None)

    @property
    def ended_ms(self) -> int:
        """The latest."""
        return max(one.cut.ended_ms for one in self.outcomes)

    @property
    def last_alive_ms(self) -> int | None:
        """When the server was last seen alive, by whichever of its queues: it went away after that."""
        known = [one.cut.started_ms for one in self.outcomes if one.cut.started_ms is not None]
        return min(max(known), self.back_ms) if known else None

    @property
    def back_ms(self) -> int:
        """When it was there again, by the first of its queues that saw it."""
        return min(one.cut.ended_ms for one in self.outcomes)

    @property
    def queues(self) -> str:
        """Its queues, for a table: a few by name, of more the number."""
        names = [one.cut.queue for one in self.outcomes]
        return ", ".join(names) if len(names) <= NAMED else f"{len(names)} queues"

    @property
    def ids(self) -> str:
        """The numbers of its interruptions, for filters; of many none: they are a queue's own."""
        return ", ".join(str(one.cut.id) for one in self.outcomes) if len(self.outcomes) <= NAMED else ""

    def takes(self, one: InterruptionOutcome) -> bool:
        """Whether `one` is this event, as it was for another queue. A server's life begins once, so a restart is known
        by its run id; else the same two lives must have met at the same time."""
        ours, cut = self.outcomes[0].cut, one.cut
        if ours.kind != cut.kind or ours.run_after != cut.run_after or cut.queue in self.names:
            return False
        if cut.kind == RESTART:
            return True
        if ours.run_before != cut.run_before or cut.started_ms is None or self.started_ms is None:
            return False
        return cut.started_ms <= self.ended_ms and self.started_ms <= cut.ended_ms

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for a table: counts are of all queues; `others` None where no queue had a census."""
        others = [one.others for one in self.outcomes if one.others is not None]
        return {
            "queues": self.queues,
            "kind": self.outcomes[0].cut.kind
            + (" (went back in time)" if any(t.cut.went_back for t in self.outcomes) else ""),
            "last_alive": iso(self.last_alive_ms),
            "back": iso(self.back_ms),
            **{name: sum(getattr(one.cut, name) for one in self.outcomes) for name in SUMS},
            "others": sum(others) if others else None,
            "ids": self.ids,
        }


def group_by_event(outcomes: Iterable[InterruptionOutcome]) -> list[ServerEvent]:
    """The events behind these interruptions, in the order of the first of each."""
    found: list[ServerEvent] = []
    of_life: dict[tuple[str, str], list[ServerEvent]] = {}
    for one in outcomes:
        known = of_life.setdefault((one.cut.kind, one.cut.run_after), [])
        event = next((event for event in known if event.takes(one)), None)
        if event is None:
            event = ServerEvent()
            known.append(event)
            found.append(event)
        event.add(one)
    return found


def format_count(events: Sequence[ServerEvent]) -> str:
    """``2 interruptions (13 with each queue's own)``"""
    each = sum(len(event.outcomes) for event in events)
    text = f"{len(events)} interruption{'' if len(events) == 1 else 's'}"
    return text if each == len(events) else f"{text} ({each} with each queue's own)"
