"""The demo's view: a table that moves on a terminal, a line now and then elsewhere, and the summary at the end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from emq_ops.cli.table import cell
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import counts, lanes

TOLD = ("slice_swept", "pass_ended", "alerted", "task_failed", "interruption_seen")
HEAD = ("queue", "waiting", "active", "scheduled", "dead", "completed", "swept", "trimmed", "archived")


@dataclass
class DemoTotals:
    """What the daemon said so far, added up by queue."""

    sums: dict[str, Counter[str]] = field(default_factory=dict)
    last: list[str] = field(default_factory=list)
    taken: int = 0

    def take(self, events: Sequence[dict[str, Any]]) -> None:
        """Adds log lines."""
        self.taken += len(events)
        for event in events:
            found = event.get("counts") or {}
            if event.get("event") == "pass_ended":
                self.sums.setdefault(event.get("queue", "?"), Counter()).update(
                    {f"{event.get('kind')}.{name}": n for name, n in found.items()}
                )
            if event.get("event") in TOLD:
                words = (
                    ", ".join(f"{name} {n}" for name, n in found.items()) or event.get("text") or event.get("error", "")
                )
                self.last.append(f"{event.get('queue', '')}: {event.get('kind') or event['event']} {words}")
        del self.last[:-6]

    def of(self, queue: str, name: str) -> int:
        """One sum."""
        return self.sums.get(queue, Counter())[name]


def rows(server: Server, queues: Sequence[str], tally: DemoTotals) -> list[dict[str, Any]]:
    """How each queue stands."""
    found = []
    for name in queues:
        q = Queue(server, name)
        now = counts(q)
        found.append(
            {
                "queue": name,
                "waiting": now.pending + sum(lane.waiting for lane in lanes(q)),
                "active": now.active,
                "scheduled": now.schedule,
                "dead": now.dead,
                "completed": now.completed,
                "swept": tally.of(name, "sweep.recovered") + tally.of(name, "sweep.dead"),
                "trimmed": tally.of(name, "trim.removed"),
                "archived": tally.of(name, "archive.folded"),
            }
        )
    return found


class DemoView:
    """Draws; on anything but a terminal it says a line every now and then."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True) if sys.stdout.isatty() else None

    @property
    def moves(self) -> bool:
        """Whether there is a terminal to draw on."""
        return self._live is not None

    def __enter__(self) -> DemoView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(text), soft_wrap=True)

    def draw(self, seconds: float, now: Sequence[dict[str, Any]], tally: DemoTotals) -> None:
        """The present state."""
        if self._live is None:
            parts = [" ".join(f"{name} {row[name]}" for name in HEAD[1:] if row[name]) for row in now]
            self.say(
                f"{seconds:4.0f} s  " + "  |  ".join(f"{row['queue']}: {p}" for row, p in zip(now, parts, strict=True))
            )
            return
        table = Table(title=f"emq-ops demo, {seconds:.0f} s", title_justify="left", box=None)
        for name in HEAD:
            table.add_column(name, justify="left" if name == "queue" else "right")
        for row in now:
            table.add_row(*[cell(row[name]) for name in HEAD])
        self._live.update(Group(table, *[Text(f"  {line}", style="dim") for line in tally.last]))
