"""Every pass that is due, once, and then the end: for schedulers of other people, such as a Kubernetes CronJob."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emq_ops.daemon import clock
from emq_ops.daemon.progress import ProgressBook
from emq_ops.daemon.tasks import PassTask, TaskSet
from emq_ops.daemon.timers import due_now, ordered
from emq_ops.daemon.work import PassRunner
from emq_ops.passes.lease.kept import KeptLease
from emq_ops.passes.lease.queue_lease import HeldQueueError, QueueLease
from emq_ops.protocol.errors import EmqError

LEASE_WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class PassTaskOutcome:
    """What became of one task: `status` done, idle, missed (too late to start), led (a living process leads the queue
    and sees to it) or failed."""

    task: PassTask
    status: str
    late_ms: int = 0
    report: dict[str, Any] | None = None
    error: str | None = None

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers."""
        head = {"queue": self.task.queue, "task": self.task.name, "status": self.status, "late_ms": self.late_ms}
        return {**head, "error": self.error, "report": self.report}


def run_due(runner: PassRunner, found: TaskSet) -> Iterator[PassTaskOutcome]:
    """Runs what is due by what is remembered of each task; one that never ran is due. One after the other, under a
    lease a queue; one task's fault does not stop the others."""
    services = runner.services
    book = ProgressBook(services.state)
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
        yield PassTaskOutcome(task, "missed")
    for cue in ordered(due_now(found.tasks.values(), marks, now)):
        task = cue.task
        lease = QueueLease(services.server, services.state, task.queue, emit=services.emit)
        try:
            with KeptLease(lease, LEASE_WAIT_SECONDS) as kept:
                book.begun(cue)
                done = runner.run(task, kept, "once")
        except HeldQueueError as held:
            yield PassTaskOutcome(task, "led", cue.late_ms, error=str(held))
            continue
        except EmqError as fault:
            book.ended(cue, str(fault), idle=False)
            yield PassTaskOutcome(task, "failed", cue.late_ms, error=str(fault))
            continue
        book.ended(cue, None, idle=False)
        yield PassTaskOutcome(task, "idle" if done.idle else "done", cue.late_ms, done.report.as_row())
    book.flush()
