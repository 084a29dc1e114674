"""What a dead trim hands back."""

from __future__ import annotations

from dataclasses import dataclass, field

from emq_ops.passes.report import NAMED, PassReport, Skipped


@dataclass(slots=True)
class TrimReport(PassReport):
    """A dead trim. `dead_before` in the dead set when it began; `victims`: how many the policy lets go; `removed` of
    them; `skipped`: named, with the reason; `survived`: no longer dead, or dead again, when their turn came;
    `malformed`: members of the dead set that are no job ids (never touched); `archived`: newly archived records;
    `waiting`: archived, and to go with the next segment; `bounded_by`: the revision whose plan listed whom this trim
    may remove.
    """

    keep: int | None = None
    max_age_ms: int | None = None
    dead_before: int = 0
    victims: int = 0
    removed: int = 0
    left: int = 0
    survived: int = 0
    archived: int = 0
    waiting: int = 0
    found_dead: int = 0
    malformed: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0
    victim_jobs: list[str] = field(default_factory=list)
    removed_jobs: list[str] = field(default_factory=list)
    bounded_by: int | None = None

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do and nothing to say."""
        counts = (self.removed, self.found_dead, self.archived, self.skipped_count)
        said = len(self.notes) - (self.bounded_by is not None)
        return self.status == "done" and not any(counts) and not said

    def skip(self, job: str, reason: str) -> None:
        """One more that stays."""
        self.skipped_count += 1
        if len(self.skipped) < NAMED:
            self.skipped.append(Skipped(job, reason))

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        numbers = {name: getattr(self, name) for name in ("removed", "survived", "archived", "waiting", "found_dead")}
        numbers["skipped"] = self.skipped_count
        return {name: number for name, number in numbers.items() if number}
