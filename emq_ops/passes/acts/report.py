"""What an act reports, and what it would report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from emq_ops.ledger import acts
from emq_ops.passes.acts.targets import Targets
from emq_ops.passes.report import NAMED, PassReport, Skipped, name_some

WHY_LEFT = {
    "alive": "not dead any more",
    "changed": "died again since it was selected",
    "held": "a worker's lock stands on it",
    "parent": "flow parent: its children still report to it",
    "damaged": "its row can't be read; see `emq-ops doctor`",
    "gone": "there is no row any more",
    "exists": "a job of that id lives",
    "lost": "it was kept nowhere",
    "erased": "its contents were erased, for good",
    "moved": "it waits no more: claimed, settled or dead since",
    "active": "a worker has it in hand",
    "dead": "dead already",
    "withdrawn": "never touched: the act was undone",
}


RESUMED_BY = {
    acts.REQUEUE: "emq-ops dead requeue",
    acts.REMOVE: "emq-ops dead remove",
    acts.DRAIN: "emq-ops job remove",
    acts.MOVE: "emq-ops job move",
}
"""The command that goes on with a run of a kind."""
_ROW = ("kind", "queue", "run", "status", "selected", "done", "last_attempt", "left", "done_jobs", "left_jobs", "notes")


@dataclass(slots=True)
class ActReport(PassReport):
    """An act, or an undo, over all its lives. `selected` jobs; `done` of them; `left`: how many of the others, by
    reason (WHY_LEFT); `done_jobs`, `left_jobs`: the first of each by name. `status`: dry, done."""

    kind: str = ""
    selected: int = 0
    done: int = 0
    last_attempt: int = 0
    left: dict[str, int] = field(default_factory=dict)
    done_jobs: list[str] = field(default_factory=list)
    left_jobs: list[Skipped] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers."""
        row = asdict(self)
        return {name: row[name] for name in _ROW}

    def next_life(self) -> None:
        """What was done and noted stays."""
        self.more = False

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        return {"selected": self.selected, acts.DONE: self.done, **self.left}

    def add(self, codes: Mapping[str, str]) -> None:
        """Adds what became of some jobs."""
        name_some(self.done_jobs, [job for job, code in codes.items() if code == acts.DONE])
        self.done += sum(code == acts.DONE for code in codes.values())
        for job, code in codes.items():
            if code != acts.DONE:
                self.left[code] = self.left.get(code, 0) + 1
                if len(self.left_jobs) < NAMED:
                    self.left_jobs.append(Skipped(job, WHY_LEFT.get(code, code)))

    def recount(self, totals: Mapping[str, int]) -> None:
        """Takes what became of the jobs from the ledger, which knows all lives of the run."""
        self.done = totals.get(acts.DONE, 0)
        self.left = {code: n for code, n in totals.items() if code not in ("selected", acts.DONE, acts.PLANNED)}

    def out_of_time(self) -> None:
        """The caller's time ran out with work left."""
        self.more = True
        again = f"`{RESUMED_BY[self.kind]} --resume {self.run}`" if self.kind in RESUMED_BY else "asked again, it"
        self.notes.append(f"the time ran out with work left; {again} goes on")


def begin_report(kind: str, targets: Targets, keep_attempts: int | None = None) -> ActReport:
    """A report of `targets` before anything is done to them, with what should be known first. `keep_attempts`: see
    `ActOptions`."""
    report = ActReport(targets.queue, kind=kind, selected=len(targets.jobs), last_attempt=targets.last_attempt)
    if kind == acts.REQUEUE and targets.last_attempt and keep_attempts is None:
        report.notes.append(
            f"{targets.last_attempt} died of an error and keep their attempts: their next error kills them again "
            "(--reset-attempts, or --max-attempts N: they keep at most N)"
        )
    if targets.damaged:
        report.notes.append(f"{targets.damaged} have no readable row and are left alone; see `emq-ops doctor`")
    return report


def preview(kind: str, targets: Targets, keep_attempts: int | None = None) -> ActReport:
    """The report of a dry run."""
    report = begin_report(kind, targets, keep_attempts)
    report.status = "dry"
    blocked = targets.blocked if kind != acts.REQUEUE else {}
    report.add(dict(sorted(blocked.items())))
    name_some(report.done_jobs, [job for job in targets.ids if job not in blocked])
    return report
