"""What the archive of a stream hands back: the cycles of a run as one."""

from __future__ import annotations

from dataclasses import dataclass

from emq_archive.reports import CycleReport, StreamCounts
from emq_ops.passes.report import PassReport

_ADDED = ("folded", "known", "shipped", "segments", "trimmed", "reborn", "erased")
_LAST = ("watermark", "bound", "unshipped", "lag_records", "lag_ms", "lsn", "unstorable", "groups", "refused")
_COUNTED = ("folded", "shipped", "segments", "trimmed", "unshipped", "lag_records")


@dataclass
class ArchiveReport(StreamCounts, PassReport):
    """Sums over the run's cycles, and how things stand after the last."""

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
