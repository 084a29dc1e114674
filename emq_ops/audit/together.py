"""Interruptions of many queues that were one event: a server went away once, and every queue of it tells so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.audit.restarts import Told, iso
from emq_ops.ledger.interruptions import RESTART

NAMED = 3
"""So many queues are named; of more, how many there are."""
SUMS = ("in_flight", "recovered", "exempted", "died", "vanished")


@dataclass(slots=True)
class Together:
    """One event: what each of its queues tells, at most one interruption a queue."""

    told: list[Told] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(self, one: Told) -> None:
        """One more queue."""
        self.told.append(one)
        self.names.add(one.cut.queue)

    @property
    def started_ms(self) -> int | None:
        """The earliest, of those that know."""
        return min((one.cut.started_ms for one in self.told if one.cut.started_ms is not None), default=None)

    @property
    def ended_ms(self) -> int:
        """The latest."""
        return max(one.cut.ended_ms for one in self.told)

    @property
    def queues(self) -> str:
        """Its queues, for a table: a few by name, of more the number."""
        names = [one.cut.queue for one in self.told]
        return ", ".join(names) if len(names) <= NAMED else f"{len(names)} queues"

    @property
    def ids(self) -> str:
        """The numbers of its interruptions, for filters; of many none: they are a queue's own."""
        return ", ".join(str(one.cut.id) for one in self.told) if len(self.told) <= NAMED else ""

    def takes(self, one: Told) -> bool:
        """Whether `one` is this event, as it was for another queue. A server's life begins once, so a restart is known
        by its run id; else the same two lives must have met at the same time."""
        ours, cut = self.told[0].cut, one.cut
        if ours.kind != cut.kind or ours.run_after != cut.run_after or cut.queue in self.names:
            return False
        if cut.kind == RESTART:
            return True
        if ours.run_before != cut.run_before or cut.started_ms is None or self.started_ms is None:
            return False
        return cut.started_ms <= self.ended_ms and self.started_ms <= cut.ended_ms

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for a table: counts are of all queues; `others` None where no queue had a census."""
        others = [one.others for one in self.told if one.others is not None]
        return {
            "queues": self.queues,
            "kind": self.told[0].cut.kind + (" (went back in time)" if any(t.cut.went_back for t in self.told) else ""),
            "started": iso(self.started_ms),
            "ended": iso(self.ended_ms),
            **{name: sum(getattr(one.cut, name) for one in self.told) for name in SUMS},
            "others": sum(others) if others else None,
            "ids": self.ids,
        }


def together(told: Iterable[Told]) -> list[Together]:
    """The events that interruptions tell of, in the order of the first of each."""
    found: list[Together] = []
    of_life: dict[tuple[str, str], list[Together]] = {}
    for one in told:
        known = of_life.setdefault((one.cut.kind, one.cut.run_after), [])
        event = next((event for event in known if event.takes(one)), None)
        if event is None:
            event = Together()
            known.append(event)
            found.append(event)
        event.add(one)
    return found


def counted(events: Sequence[Together]) -> str:
    """``2 interruptions (13 with each queue's own)``"""
    each = sum(len(event.told) for event in events)
    text = f"{len(events)} interruption{'' if len(events) == 1 else 's'}"
    return text if each == len(events) else f"{text} ({each} with each queue's own)"
