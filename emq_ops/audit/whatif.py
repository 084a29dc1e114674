"""What if the threshold had been another: the ledger's stalls, replayed.

Each job's counted stalls are gone through in the order in which they happened. At the threshold in question a job dies
at the stall that reaches it; what it did after that, it would not have done. A requeue (which clears the count) had its
effect only where the job was dead by then. Stalls that an exemption kept from counting don't count here either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from typing import Any

from emq_ops.ledger import stalls
from emq_ops.ledger.history import thresholds, uncounted_deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.stalls import DEAD, Stall
from emq_ops.protocol.errors import BadInputError

NAMED = 100_000
SAME = "same"


@dataclass(slots=True)
class ReplayedJob:
    """One job. `died`, `would_die`: how often; `stalls`: how many were counted; `by_others`: how many of its deaths no
    sweep of ours made."""

    queue: str
    job: str
    died: int
    would_die: int
    stalls: int
    by_others: int = 0

    @property
    def verdict(self) -> str:
        """same, would have lived, would have died, or died less or more often."""
        if bool(self.died) != bool(self.would_die):
            return "would have died" if self.would_die else "would have lived"
        return SAME if self.died == self.would_die else "other deaths"

    @property
    def dies(self) -> bool:
        """Whether it died, or would have."""
        return bool(self.died or self.would_die)

    def as_row(self) -> dict[str, Any]:
        """As a plain dict."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "verdict": self.verdict}


@dataclass(slots=True)
class WhatIf:
    """The replay at `max_stalled`. `died` and `would_die`: jobs that died of stalls at least once, as it was and as it
    would have been; `differing`: how many of them have another fate; `fates`: each of them by name, those with another
    fate first (of either at most NAMED; `unnamed`: how many more there are); `in_force`: thresholds of the sweeps, and
    how many passes had each; `by_others`: stalled deaths that no sweep of ours made, of which only the count is
    known."""

    max_stalled: int
    queues: list[str] = field(default_factory=list)
    jobs: int = 0
    died: int = 0
    would_die: int = 0
    differing: int = 0
    by_others: int = 0
    in_force: dict[str, int] = field(default_factory=dict)
    unnamed: int = 0
    others: list[ReplayedJob] = field(default_factory=list)
    same: list[ReplayedJob] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def fates(self) -> list[ReplayedJob]:
        """Who died or would have, those with another fate first."""
        return self.others + self.same

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for JSON."""
        names = [name for name in self.__slots__ if name not in ("others", "same")]
        return {name: getattr(self, name) for name in names} | {"fates": [fate.as_row() for fate in self.fates]}

    def add(self, fate: ReplayedJob) -> None:
        """Counts one more job that stalled."""
        self.jobs += 1
        self.died += bool(fate.died)
        self.would_die += bool(fate.would_die)
        self.by_others += fate.by_others
        self.differing += fate.verdict != SAME
        named = self.same if fate.verdict == SAME else self.others
        if fate.dies and len(named) < NAMED:
            named.append(fate)
        else:
            self.unnamed += fate.dies


def replay(history: Sequence[Stall], max_stalled: int) -> int:
    """How often a job would have died at that threshold, by all its stalls in order. Pure."""
    counted = [stall for stall in history if stall.counted]
    # Stalls before the first that is known are known by its count.
    count = counted[0].stalls - 1 if counted else 0
    dead = count >= max_stalled
    deaths_so_far = int(dead)
    before: Stall | None = None
    for stall in counted:
        if before is not None:
            anew = stall.attempts <= before.attempts  # the token went back: another row under the same id
            cleared = stall.stalls <= before.stalls
            if before.outcome == DEAD and dead:
                # It was dead, and somebody brought it back. That had an effect here too.
                dead, count = False, 0 if cleared else count
            elif not dead and (anew or (cleared and before.outcome != DEAD)):
                count = 0
            elif not dead:
                count += max(0, stall.stalls - before.stalls - 1)  # stalls that were never recorded one by one
        if not dead:
            count += 1
            if count >= max_stalled:
                dead = True
                deaths_so_far += 1
        before = stall
    return deaths_so_far


def what_if(
    ledger: Ledger, max_stalled: int, queues: Iterable[str], *, since_ms: int | None = None, each: Any = None
) -> WhatIf:
    """Replays the stalls of `queues` at `max_stalled`. `each` is called with every job's fate. Raises BadInputError (a
    threshold below 1)."""
    out = begin(max_stalled, queues)
    for fate in fates_of(out, ledger, since_ms=since_ms):
        if each is not None:
            each(fate)
    finish(out, ledger)
    return out


def begin(max_stalled: int, queues: Iterable[str]) -> WhatIf:
    """A replay with nothing counted yet. Raises BadInputError (a threshold below 1)."""
    if max_stalled < 1:
        raise BadInputError(f"max_stalled is {max_stalled}", fix="1 or more; the first stall is 1")
    return WhatIf(max_stalled, sorted(queues))


def fates_of(out: WhatIf, ledger: Ledger, *, since_ms: int | None = None) -> Iterator[ReplayedJob]:
    """Every job that stalled, one queue after the other, by id; each is counted in `out` on the way."""
    for queue in out.queues:
        for history in _histories(ledger, queue, since_ms):
            died = sum(stall.outcome == DEAD for stall in history)
            counted, others = sum(s.counted for s in history), sum(not s.run for s in history)
            fate = ReplayedJob(queue, history[0].job, died, replay(history, out.max_stalled), counted, others)
            out.add(fate)
            yield fate


def finish(out: WhatIf, ledger: Ledger) -> None:
    """Says which thresholds were in force, and what should be noted."""
    max_stalled = out.max_stalled
    out.in_force = thresholds(ledger, set(out.queues))
    if not out.jobs:
        out.notes.append("the ledger has no stall of these queues")
    if any(int(threshold) < max_stalled for threshold in out.in_force):
        out.notes.append("a job that died lived on here, but what it would have done then nobody can know")
    if out.by_others:
        out.notes.append(f"{out.by_others} stalled deaths were made by others: only their count is known")
    if out.unnamed:
        out.notes.append(f"{out.unnamed} more are not named here; --output jsonl names them all")


def _histories(ledger: Ledger, queue: str, since_ms: int | None) -> Iterator[list[Stall]]:
    """Each job's stalls in order, by job; a stalled death that no sweep of ours made is a stall without a run."""
    ours = stalls.by_job(ledger, queue)
    others = uncounted_deaths(ledger, queue)
    parts = merge(ours, others, key=lambda history: history[0].job)
    for _, histories in groupby(parts, key=lambda history: history[0].job):
        whole = sorted((stall for history in histories for stall in history), key=lambda stall: stall.at_ms)
        kept = [stall for stall in whole if since_ms is None or stall.at_ms >= since_ms]
        if kept:
            yield kept
