"""What a pass hands back. Plain values; `as_row` is the stable JSON form."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

NAMED = 1000
"""How many ids a report names of each kind; counts are always whole."""


def name_some(names: list[str], more: list[str]) -> None:
    """Adds to the ids that a report names, as far as there is room."""
    names.extend(more[: max(0, NAMED - len(names))])


@dataclass(slots=True)
class SweepReport:
    """A stalled sweep. `recovered`: back to wait (of them `exempted` uncounted, `forced` counted for having been exempt
    too often in a row); `dead`: dead-lettered; `ghosts`: ids without a row that were removed; `found_dead`: deaths by
    others that the ledger learnt of. `replayed`: slices of an earlier pass that this one recorded. `more`: the time
    ran out with leases still due. `status`: done, held, stopped (a guard refused; `stopped_by` says which).
    """

    queue: str
    status: str = "done"
    run: str | None = None
    token: int = 0
    max_stalled: int = 1
    restart: str = "exempt"
    slices: int = 0
    recovered: int = 0
    exempted: int = 0
    forced: int = 0
    dead: int = 0
    ghosts: int = 0
    found_dead: int = 0
    replayed: int = 0
    more: bool = False
    stopped_by: str | None = None
    held_until_ms: int | None = None
    interruption: int | None = None
    competitors: list[str] = field(default_factory=list)
    recovered_jobs: list[str] = field(default_factory=list)
    exempted_jobs: list[str] = field(default_factory=list)
    dead_jobs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do and nothing to say."""
        counts = (self.recovered, self.dead, self.ghosts, self.found_dead, self.replayed)
        return self.status == "done" and not any(counts) and not self.notes

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        names = ("recovered", "exempted", "forced", "dead", "ghosts", "found_dead")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers."""
        return asdict(self)


@dataclass(slots=True)
class Skipped:
    """A job that a trim left where it is, and why: held, flow child, changed, not archived ..."""

    job: str
    reason: str


@dataclass(slots=True)
class TrimReport:
    """A dead trim. `dead_before` in the dead set when it began; `victims`: how many the policy lets go; `removed` of
    them; `skipped`: named, with the reason; `survived`: no longer dead, or dead again, when their turn came;
    `malformed`: members of the dead set that are no job ids (never touched). `archived`: newly archived records.
    `status`: done, held, stopped (a guard refused; `stopped_by`), dry (nothing was changed). `more`: the time ran out.
    """

    queue: str
    status: str = "done"
    run: str | None = None
    token: int = 0
    keep: int | None = None
    max_age_ms: int | None = None
    dead_before: int = 0
    victims: int = 0
    removed: int = 0
    left: int = 0
    survived: int = 0
    archived: int = 0
    found_dead: int = 0
    malformed: int = 0
    more: bool = False
    stopped_by: str | None = None
    held_until_ms: int | None = None
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0
    victim_jobs: list[str] = field(default_factory=list)
    removed_jobs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do and nothing to say."""
        counts = (self.removed, self.found_dead, self.archived, self.skipped_count)
        return self.status == "done" and not any(counts) and not self.notes

    def skip(self, job: str, reason: str) -> None:
        """One more that stays."""
        self.skipped_count += 1
        if len(self.skipped) < NAMED:
            self.skipped.append(Skipped(job, reason))

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        numbers = {name: getattr(self, name) for name in ("removed", "survived", "archived", "found_dead")}
        numbers["skipped"] = self.skipped_count
        return {name: number for name, number in numbers.items() if number}

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers."""
        return asdict(self)
