"""Where removed jobs are kept: with the act that took them, with their death in the ledger, in the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from emq_ops.database.engine import Connection
from emq_ops.ledger import acts, deaths
from emq_ops.ledger.erased import erased_among
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.runs import Run
from emq_ops.ledger.snapshot import JobSnapshot, unpack_death

FindArchived = Callable[[str, str], JobSnapshot | None]
"""(queue, job) -> the job as the archive has it last, or None."""
Page = dict[str, JobSnapshot | None]
"""Jobs to bring back; None: it is kept nowhere any more."""


class RestoreSource(Protocol):
    """Jobs to bring back, in pages, and what is noted in the ledger once they are back."""

    def pages(self, size: int) -> Iterator[Page]: ...

    def note_back(self, connection: Connection, jobs: Sequence[str], by: str) -> None: ...


class RemovedByAct:
    """What an act took away."""

    def __init__(self, ledger: Ledger, removal: Run) -> None:
        self.ledger, self.removal = ledger, removal

    def pages(self, size: int) -> Iterator[Page]:
        """By job."""
        page: Page = {}
        for item, snapshot in acts.removed(self.ledger, self.removal.id, page=size):
            page[item.job] = snapshot
            if len(page) == size:
                yield page
                page = {}
        if page:
            yield page

    def note_back(self, connection: Connection, jobs: Sequence[str], by: str) -> None:
        """The items are undone, and the deaths open again."""
        acts.mark_undone(connection, self.removal.id, jobs, by)
        deaths.reopen(connection, self.removal.queue, jobs, self.removal.id)


class RemovedByTrim:
    """What a trim removed, as the ledger has each death, or the archive."""

    def __init__(self, ledger: Ledger, trim: Run, find: FindArchived | None) -> None:
        self.ledger, self.trim, self.find = ledger, trim, find

    def pages(self, size: int) -> Iterator[Page]:
        """By death."""
        for page in deaths.removed_by(self.ledger, self.trim.id, size):
            yield {job: self._snapshot(job, body) for job, body in page}

    def _snapshot(self, job: str, body: bytes | None) -> JobSnapshot | None:
        if body is not None:
            return unpack_death(body)
        return find_archived(self.ledger, self.trim.queue, job, self.find)

    def note_back(self, connection: Connection, jobs: Sequence[str], by: str) -> None:
        """The deaths are open again."""
        deaths.reopen(connection, self.trim.queue, jobs, self.trim.id)


class NamedJobs:
    """Jobs by their ids, each from the place that has it newest: attempts never go back. `requeued`: they wait again
    afterwards."""

    def __init__(
        self, ledger: Ledger, queue: str, jobs: Sequence[str], find: FindArchived | None, *, requeued: bool
    ) -> None:
        self.ledger, self.queue, self.jobs, self.find, self.requeued = ledger, queue, jobs, find, requeued

    def pages(self, size: int) -> Iterator[Page]:
        """In the order that they were named."""
        for first in range(0, len(self.jobs), size):
            yield {job: newest_snapshot(self.ledger, self.queue, job, self.find) for job in self.jobs[first:][:size]}

    def note_back(self, connection: Connection, jobs: Sequence[str], by: str) -> None:
        """The deaths are open again."""
        if not self.requeued:
            deaths.reopen(connection, self.queue, jobs)


def newest_snapshot(ledger: Ledger, queue: str, job: str, find: FindArchived | None) -> JobSnapshot | None:
    """A removed job as it was last, None where it is kept nowhere, or was erased. The archive is asked where the ledger
    has none."""
    kept = [acts.last_snapshot(ledger, queue, job)]
    kept += [
        unpack_death(death.snapshot)
        for death in deaths.iterate(ledger, queue=queue, job=job)
        if death.snapshot is not None
    ]
    if not any(kept):
        kept.append(find_archived(ledger, queue, job, find))
    return max((snapshot for snapshot in kept if snapshot is not None), key=_attempts, default=None)


def find_archived(ledger: Ledger, queue: str, job: str, find: FindArchived | None) -> JobSnapshot | None:
    """A job as the archive has it; None for one that was erased, whatever an archive may still hold."""
    if find is None:
        return None
    with ledger.read() as connection:
        if erased_among(connection, queue, [job]):
            return None
    return find(queue, job)


def _attempts(snapshot: JobSnapshot) -> int:
    text = snapshot.get(b"attempts") or b""
    return int(text) if text.isdigit() and len(text) < 19 else -1
