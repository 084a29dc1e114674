"""One queue in detail: its lanes by need, its repeatables, what passes did lately, what died of what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emq_ops.ledger import death_summaries, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.runs import Run
from emq_ops.overview.health import Problem
from emq_ops.overview.overview import QueueStanding
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import repeat
from emq_ops.protocol.transitions.reads import Lane, lanes

MOST_REPEATABLES = 50
LAST_RUNS = 5
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class RepeatableLook:
    """A repeatable: its period (ms; None: its hash says none), when it fires next (unix ms; 0: not known yet), the
    `cron` line and zone of one by the calendar, and the lane of its jobs (None: flat)."""

    name: str
    every_ms: int | None
    next_ms: int
    cron: str = ""
    lane: str | None = None


@dataclass(frozen=True, slots=True)
class QueueDetail:
    """A queue's standing and the rest. `lanes`: those that need somebody first, first; `repeatables`: by their next
    instant, at most MOST_REPEATABLES; `runs`: the newest first; `deaths`: of the last day, by cause; `notes`: what
    could not be read."""

    standing: QueueStanding
    lanes: tuple[Lane, ...]
    repeatables: tuple[RepeatableLook, ...]
    runs: tuple[Run, ...]
    deaths: dict[str, int]
    notes: tuple[str, ...]

    @property
    def next_steps(self) -> list[Problem]:
        """What to do next, the most urgent first; empty where nothing is wrong."""
        found = list(self.standing.problems)
        stuck = [one for one in self.lanes if one.waiting and not (one.paused or one.on_ring) and not _full(one)]
        if stuck:
            text = f"lane {stuck[0].group} has work and is not on the ring: nobody claims its jobs"
            found.append(Problem("lost_lane", text, f"emq-ops doctor {self.standing.queue} --fix"))
        waits = [one for one in self.lanes if one.paused and one.waiting]
        if waits:
            text = f"lane {waits[0].group} is paused, and {waits[0].waiting:,} jobs wait in it"
            found.append(Problem("paused_lane", text, f"emq-ops lane resume {self.standing.queue} {waits[0].group}"))
        return found

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for JSON."""
        return self.standing.as_row() | {
            "lanes": [lane_row(one) for one in self.lanes],
            "repeatables": [{name: getattr(one, name) for name in one.__slots__} for one in self.repeatables],
            "runs": [run.as_row() for run in self.runs],
            "deaths_last_day": self.deaths,
            "next": [{"kind": one.kind, "text": one.text, "command": one.fix} for one in self.next_steps],
            "notes": list(self.notes),
        }


def lane_row(lane: Lane) -> dict[str, Any]:
    """A lane as a plain dict."""
    return {
        "lane": lane.group,
        "waiting": lane.waiting,
        "in_flight": lane.in_flight,
        "limit": lane.limit,
        "paused": lane.paused,
        "on_ring": lane.on_ring,
    }


def by_need(found: list[Lane]) -> list[Lane]:
    """Lanes with those first in which most jobs wait, and at equal numbers those that nobody serves."""
    return sorted(found, key=lambda one: (-one.waiting, one.on_ring, -one.in_flight, one.group))


def detail_of(server: Server, standing: QueueStanding, ledger: Ledger | None) -> QueueDetail:
    """The rest about a queue of which `standing` is known. A part that can't be read is a note. Raises what the ledger
    raises."""
    q, notes = Queue(server, standing.queue), []
    found: list[Lane] = []
    repeats: list[RepeatableLook] = []
    try:
        found = by_need(lanes(q))
        repeats = repeatables(q)
    except EmqError as fault:
        notes.append(str(fault))
    last: list[Run] = []
    causes: dict[str, int] = {}
    if ledger is not None:
        last = runs.latest(ledger, queue=standing.queue, limit=LAST_RUNS, idle=False)
        now = standing.look.now_ms if standing.look is not None else server.now_ms(standing.queue)
        with ledger.read() as connection:
            causes = death_summaries.causes_since(connection, standing.queue, now - DAY_MS)
    else:
        notes.append("no state database: what passes did, and who died of what, is not known")
    return QueueDetail(standing, tuple(found), tuple(repeats), tuple(last), causes, tuple(notes))


def repeatables(q: Queue) -> list[RepeatableLook]:
    """The repeatables that are due first."""
    found = repeat.repeatables(q, MOST_REPEATABLES)
    looks = [
        RepeatableLook(one.name, one.every_ms or None, one.next_ms, f"{one.cron} {one.zone}".strip(), one.lane)
        for one in found
    ]
    return sorted(looks, key=lambda one: one.next_ms)[:MOST_REPEATABLES]


def _full(lane: Lane) -> bool:
    return lane.limit is not None and lane.in_flight >= lane.limit
