"""Deaths that a restart may have caused, and bursts: many leases lost at once. Always with the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.ledger.deaths import STALLED, KnownDeath
from emq_ops.ledger.history import counted_together
from emq_ops.ledger.interruptions import Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.ids import at

BURST = 10
"""Counted stalls in one pass that are a burst unless said otherwise."""
NAMED = 20
LEASE_MS = 30_000
AFTER_MS = 300_000
"""A death that nobody of ours made, first seen so long after an interruption at the most, may be of it."""
_PROVEN = ("epoch", "census")
"""Evidence that a lease was of the life in which it lapsed."""


def clock(ms: int) -> str:
    """An instant for people, to the second, UTC."""
    return f"{at(ms):%Y-%m-%d %H:%M:%S}Z"


def seconds(ms: int) -> str:
    """A span for people."""
    return f"{ms / 1000:.1f} s"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A stalled death that an interruption may have caused. `sure`: its lease is of the earlier life by the ledger's
    own evidence; `evidence`: a sentence."""

    queue: str
    job: str
    interruption: int
    sure: bool
    evidence: str

    def as_row(self) -> dict[str, Any]:
        """As a plain dict."""
        return {name: getattr(self, name) for name in self.__slots__}


def suspect(
    queue: str, job: str, known: KnownDeath, cuts: Sequence[Interruption], lease_ms: int = LEASE_MS
) -> Suspect | None:
    """Why a stalled death may be of an interruption (`cuts`: those of its queue), None where nothing says so."""
    if known.cause != STALLED:
        return None
    if known.interruption is not None:
        cut = next((c for c in cuts if c.id == known.interruption), None)
        which = _named(cut) if cut else f"interruption {known.interruption}"
        why = "it had been exempt too often in a row" if known.evidence == "max-exempt" else f"by {known.evidence}"
        return Suspect(
            queue, job, known.interruption, True, f"its lease was of the life before {which}; counted: {why}"
        )
    if known.evidence in _PROVEN:
        return None
    for cut in reversed(cuts):
        text = _near(known, cut, lease_ms)
        if text is not None:
            return Suspect(queue, job, cut.id, False, text)
    return None


def _named(cut: Interruption) -> str:
    return f"the {cut.kind} that ended {clock(cut.ended_ms)}"


def _near(known: KnownDeath, cut: Interruption, lease_ms: int) -> str | None:
    begun = cut.started_ms if cut.started_ms is not None else cut.ended_ms
    lapsed = known.deadline_ms
    if lapsed is not None:
        if not begun <= lapsed <= cut.ended_ms + lease_ms:
            return None
        side = "during" if lapsed < cut.ended_ms else f"{seconds(lapsed - cut.ended_ms)} after"
        return f"its lease lapsed {clock(lapsed)}, {side} {_named(cut)}"
    if known.killed_by is None and cut.ended_ms <= known.first_seen_ms <= cut.ended_ms + AFTER_MS:
        later = seconds(known.first_seen_ms - cut.ended_ms)
        return f"first seen dead {later} after {_named(cut)}; killed by no pass of ours"
    return None


@dataclass(slots=True)
class Burst:
    """Many leases that one sweep found lapsed and counted: a worker host may have gone away. `run`: the pass;
    `first_deadline_ms` to `last_deadline_ms`: when they lapsed; `across`: how many of them had been in flight across an
    interruption; `jobs`: the first of them, by name."""

    queue: str
    run: str
    at_ms: int
    leases: int
    died: int
    recovered: int
    first_deadline_ms: int
    last_deadline_ms: int
    across: int = 0
    jobs: list[str] = field(default_factory=list)

    @property
    def evidence(self) -> str:
        """A sentence."""
        span = seconds(self.last_deadline_ms - self.first_deadline_ms)
        return (
            f"{self.leases} leases lapsed within {span} (until {clock(self.last_deadline_ms)}) and were counted by one "
            f"pass: {self.died} died, {self.recovered} were recovered; "
            + (
                f"{self.across} had been in flight across an interruption"
                if self.across
                else "a worker host went away?"
            )
        )

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, evidence included."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "evidence": self.evidence}


def bursts(ledger: Ledger, queue: str | None = None, *, least: int = BURST, since_ms: int = 0) -> list[Burst]:
    """The sweeps that counted `least` stalls or more, oldest first."""
    found = counted_together(ledger, queue, least=least, since_ms=since_ms, named=NAMED)
    return [
        Burst(f.queue, f.run, f.at_ms, f.leases, f.died, f.leases - f.died, f.first_ms, f.last_ms, f.across, f.jobs)
        for f in found
    ]
