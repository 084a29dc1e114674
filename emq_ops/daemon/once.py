"""Every pass that is due, once, and then the end: for schedulers of other people, such as a Kubernetes CronJob."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emq_ops.daemon import clock
from emq_ops.daemon.book import Book
from emq_ops.daemon.tasks import Task, TaskSet
from emq_ops.daemon.timers import due_now, ordered
from emq_ops.daemon.work import Worker
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit, nowhere
from emq_ops.passes.lease.queue_lease import HeldQueueError, QueueLease
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.server import Server

LEASE_WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one task: `status` done, idle, missed (too late to start), led (a living process leads the queue
    and sees to it) or failed."""

    task: Task
    status: str
    late_ms: int = 0
    report: dict[str, Any] | None = None
    error: str | None = None

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers."""
        head = {"queue": self.task.queue, "task": self.task.name, "status": self.status, "late_ms": self.late_ms}
        return {**head, "error": self.error, "report": self.report}


def run_due(server: Server, ledger: Ledger, worker: Worker, found: TaskSet, emit: Emit = nowhere) -> Iterator[Outcome]:
    """Runs what is due by what is remembered of each task; one that never ran is due. One after the other, under a
    lease a queue; one task's fault does not stop the others."""
    book = Book(ledger)
    marks = book.load(set(found.queues))
    now = clock.now()
    missed = [
        (task, due)
        for task in found.tasks.values()
        if (mark := marks.get(task.key)) is not None
        and (due := task.schedule.due(clock.at(mark.due_ms), now, task=task.text)).missed
    ]
    for task, due in missed:
        book.missed(task, due.missed)
        book.seen_to(task, due.latest)
        yield Outcome(task, "missed")
    for cue in ordered(due_now(found.tasks.values(), marks, now)):
        task = cue.task
        leadership = QueueLease(server, ledger, task.queue, emit=emit)
        try:
            leadership.acquire(LEASE_WAIT_SECONDS)
            book.begun(cue)
            with leadership.kept() as fence:
                done = worker.run(task, fence, lease_ms=found.longest_lease_ms(task.queue), trigger="once")
        except HeldQueueError as held:
            yield Outcome(task, "led", cue.late_ms, error=str(held))
            continue
        except EmqError as fault:
            book.ended(cue, str(fault), idle=False)
            yield Outcome(task, "failed", cue.late_ms, error=str(fault))
            continue
        book.ended(cue, None, idle=False)
        yield Outcome(task, "idle" if done.idle else "done", cue.late_ms, done.report.as_row())
    book.flush()
