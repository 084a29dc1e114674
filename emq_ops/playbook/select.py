"""Which tasks of a playbook a run takes: by tags, and from which task on."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from emq_ops.playbook.errors import wrong
from emq_ops.playbook.model import Playbook, Task
from emq_ops.policy.words import did_you_mean
from emq_ops.protocol.errors import one_line


@dataclass(frozen=True)
class TaskSelection:
    """`tags`, `skip`: as given; `first`: tasks before this place in reading order are left out."""

    tags: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()
    first: int = 0

    def takes(self, task: Task) -> bool:
        """Whether a task runs, by Ansible's rules: ``always`` runs unless skipped by that name, ``never`` only when a
        tag of the task is asked for; ``all``, ``tagged`` and ``untagged`` mean what they say."""
        if task.order < self.first:
            return False
        own = task.tags
        plain = own - {"always", "never"}
        wanted = self.tags or {"all"}
        taken = "always" in own or bool(own & wanted)
        if "never" not in own or bool(own & self.tags):
            taken = taken or "all" in wanted
            taken = taken or ("tagged" in wanted and bool(plain)) or ("untagged" in wanted and not plain)
        refused = bool(own & self.skip)
        refused = refused or ("all" in self.skip and "always" not in own)
        refused = refused or ("tagged" in self.skip and bool(plain)) or ("untagged" in self.skip and not plain)
        return taken and not refused


SPECIAL = ("all", "tagged", "untagged", "always", "never")


def select(playbook: Playbook, tags: list[str], skip: list[str], start_at: str | None) -> TaskSelection:
    """The selection that a command line means. `start_at`: a task's name, a pattern for it, or where it stands (as
    ``--list-tasks`` shows it). Raises PlaybookError for a tag or task that is not there, and where no task is left."""
    known = {tag for _, task in playbook.tasks() for tag in task.tags}
    for option, given in (("--tags", tags), ("--skip-tags", skip)):
        for tag in given:
            if tag not in known and tag not in SPECIAL:
                wrong(option, f"no task has the tag '{tag}'", did_you_mean(tag, known | set(SPECIAL)))
    first = 0
    if start_at is not None:
        first = _start(playbook, start_at)
    found = TaskSelection(frozenset(tags), frozenset(skip), first)
    if not any(found.takes(task) for _, task in playbook.tasks()):
        wrong("--tags", "no task is left to run", "see --list-tasks for the tasks and their tags")
    return found


def _start(playbook: Playbook, start_at: str) -> int:
    tasks = [task for _, task in playbook.tasks()]
    named = [task for task in tasks if task.name == start_at]
    places = list(dict.fromkeys(str(task.pos) for task in named))
    if len(places) > 1:
        hint = f"give its place: --start-at-task {places[0]}"
        wrong("--start-at-task", f"{len(places)} tasks are called '{one_line(start_at)}', at {', '.join(places)}", hint)
    found = named or [task for task in tasks if start_at in (str(task.pos), f"{task.pos.file}:{task.pos.line}")]
    found = found or [task for task in tasks if fnmatch.fnmatchcase(task.name, start_at)]
    if not found:
        names = dict.fromkeys(task.name for task in tasks)
        wrong("--start-at-task", f"no task is called '{one_line(start_at)}'", did_you_mean(start_at, names))
    return found[0].order
