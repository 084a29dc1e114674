"""The jobs that an act is about, as they were when they were selected."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from emq_ops.database.statements import pages
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.deadset import DeadJob
from emq_ops.passes.acts.selection import DeadSelection, nothing, select
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server


@dataclass(slots=True)
class Targets:
    """What a selection took on one queue, before anything is done. `jobs`: (id, attempts, stalls); `last_attempt`: how
    many died of an error: their next error kills them again, since attempts stay; `damaged`: how many have no readable
    row; `blocked`: those that a removal leaves alone, as far as it was seen (job -> one of `report.WHY_LEFT`)."""

    queue: str
    jobs: list[tuple[str, int, int]] = field(default_factory=list)
    last_attempt: int = 0
    damaged: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    blocked: dict[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        """The jobs' ids."""
        return [job for job, _, _ in self.jobs]

    def add(self, job: DeadJob) -> None:
        """One more; a job whose row can't be read is counted, and left alone."""
        if job.damaged:
            self.damaged += 1
            return
        self.jobs.append((job.job, job.attempts, job.stalls))
        self.causes[job.cause] += 1
        self.last_attempt += job.cause == "error"
        if job.held:
            self.blocked[job.job] = "held"


def choose(server: Server, queue: str, selection: DeadSelection, ledger: Ledger | None = None) -> Targets:
    """What `selection` takes now; changes nothing. Raises EmptySelectionError where that is nothing."""
    targets = Targets(queue)
    for job in select(server, queue, selection, ledger):
        targets.add(job)
    if not targets.jobs:
        raise nothing([queue], selection)
    return targets


def note_flow_parents(server: Server, targets: Targets) -> None:
    """Notes which of the jobs are flow parents whose children still report to them: a removal leaves them alone."""
    keys = keys_of(targets.queue)
    for page in pages(targets.ids):
        counts = server.read_many([("GET", keys.book(job, "dependencies")) for job in page])
        open_ = [job for job, count in zip(page, counts, strict=True) if (count or b"0") != b"0"]
        failed = server.read_many([("HLEN", keys.book(job, "failed")) for job in open_])
        waits = dict(zip(page, counts, strict=True))
        for job, dead in zip(open_, failed, strict=True):
            if not waits[job].lstrip(b"-").isdigit() or int(waits[job]) > dead:
                targets.blocked.setdefault(job, "parent")
