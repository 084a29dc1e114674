"""A run that failed, taken up again: what of it stands, and what is done again once the cause is mended.

On every queue that fell out, everything before the task where the trouble began stands, with its registered values.
That task begins anew (of a loop only what failed of it), and so does what came after it: rescue and always sections,
handlers. These may have undone what earlier tasks had set, such as a pause; so where any of them ran, the tasks that
only set a state (`Module.state`) look again whether it is set. Whom they notified stays notified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emq_ops.playbook.model import Play, Playbook, Task
from emq_ops.playbook.outcome import RecapLine
from emq_ops.playbook.store.records import WHOLE, StepKey, StepRecord
from emq_ops.playbook.walk import QueueWalk, Selects


@dataclass
class Again:
    """Steps of an earlier life that are done again: `dropped`, begun anew; `reset`, looked at again."""

    dropped: set[StepKey] = field(default_factory=set)
    reset: set[StepKey] = field(default_factory=set)


def again(
    playbook: Playbook, takes: Selects, queues: Mapping[int, Sequence[str]], steps: Mapping[StepKey, StepRecord]
) -> Again:
    """What a failed run has to do again. `queues`: those of each play, by its index; `steps`: what is recorded."""
    found = Again()
    for play in playbook.plays:
        for queue in queues.get(play.index, ()):
            _queue(found, play, takes, queue, steps)
    return found


def _queue(found: Again, play: Play, takes: Selects, queue: str, steps: Mapping[StepKey, StepRecord]) -> None:
    walk = QueueWalk(queue, play, takes, RecapLine(), {})
    passed: list[Task] = []
    while walk.task is not None:
        known = steps.get((walk.task.key, queue, WHOLE))
        if known is None or known.outcome is None:
            break
        passed.append(walk.task)
        walk.feed(known.outcome)
    origin = walk.origin or walk.task  # a queue that was stopped for others' failures stands at its next task
    if origin is None:
        return
    keys = [task.key for task in passed]
    before = passed[: keys.index(origin.key)] if origin.key in keys else passed
    stand = {task.key for task in before}
    cleaned = False
    for key, step in steps.items():
        task, of, item = key
        if of != queue or task in stand or not task.startswith(f"{play.index}."):
            continue
        if task != origin.key:
            cleaned = cleaned or step.outcome is not None
        elif walk.origin is None or (item != WHOLE and step.outcome is not None and not step.outcome.failed):
            continue
        found.dropped.add(key)
    if cleaned:
        states = {task.key for task in before if task.module.state}
        found.reset |= {key for key in steps if key[1] == queue and key[0] in states}
