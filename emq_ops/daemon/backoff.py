"""When a failed task is tried again."""

from __future__ import annotations

from emq_ops.daemon.tasks import PassTask
from emq_ops.policy.triggers import Interval

CRON_FIRST_MS = 30_000


def retry_ms(task: PassTask, failures: int, most_ms: int) -> int:
    """After how many ms the run after `failures` in a row may begin: the interval (30 s for a cron task), doubled by
    each failure, `most_ms` at the most."""
    trigger = task.schedule.trigger
    first = trigger.ms if isinstance(trigger, Interval) else CRON_FIRST_MS
    return int(min(first * 2 ** min(failures - 1, 20), max(most_ms, 1)))
