"""What the archive of a stream hands back: the cycles of a run as one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emq_archive.reports import CycleReport
from emq_ops.passes.report import PassReport

_ADDED = ("folded", "known", "shipped", "segments", "trimmed", "reborn", "erased")
_LAST = ("watermark", "bound", "unshipped", "lag_records", "lag_ms", "lsn", "unstorable", "groups", "refused")
_COUNTED = ("folded", "shipped", "segments", "trimmed", "unshipped", "lag_records")


@dataclass(slots=True)
class ArchiveReport(PassReport):
    """As `emq_archive.reports.Report`, which says what each number means: sums over the run's cycles, and how things
    stand after the last."""

    stream: str = ""
    folded: int = 0
    known: int = 0
    shipped: int = 0
    segments: int = 0
    trimmed: int = 0
    watermark: str | None = None
    bound: str | None = None
    unshipped: int = 0
    lag_records: int = 0
    lag_ms: int = 0
    lsn: int = 0
    reborn: int = 0
    erased: int = 0
    unstorable: list[dict[str, str]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do and nothing to say."""
        return not (self.folded or self.shipped or self.trimmed or self.notes or self.unstorable)

    def add(self, cycle: CycleReport) -> None:
        """One more cycle of this run."""
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(cycle, name))
        for name in _LAST:
            setattr(self, name, getattr(cycle, name))
        self.notes += [note for note in cycle.notes if note not in self.notes]

    def refuse(self, text: str, until_ms: int | None) -> None:
        """The run was not begun: the queue is held until then."""
        self.status, self.held_until_ms = "held", until_ms
        self.refused.append(text)

    def next_life(self) -> None:
        """The run goes on in a new life; what its cycles noted stays."""

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        return {name: getattr(self, name) for name in _COUNTED if getattr(self, name)}
