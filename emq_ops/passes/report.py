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
class PassReport:
    """What every report has. `status`: done, held, stopped (a guard refused; `stopped_by` says which), dry (nothing was
    changed); `run`: its id in the ledger; `token`: of the lease; `more`: the time ran out with work left; `notes`: what
    an operator should know.
    """

    queue: str
    status: str = "done"
    run: str | None = None
    token: int = 0
    more: bool = False
    stopped_by: str | None = None
    held_until_ms: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do and nothing to say."""
        return self.status == "done" and not self.counts() and not self.notes

    def refuse(self, text: str, until_ms: int | None) -> None:
        """The run was not begun: the queue is held until then."""
        self.status, self.held_until_ms = "held", until_ms
        self.notes.append(text)

    def next_life(self) -> None:
        """The run goes on in a new life: what the next one tells anew is taken back, what was done stays."""
        self.more = False
        self.notes.clear()

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger; without those that are 0."""
        raise NotImplementedError

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers."""
        return asdict(self)


@dataclass(slots=True)
class Skipped:
    """A job that a trim left where it is, and why: held, changed, not archived ..."""

    job: str
    reason: str
