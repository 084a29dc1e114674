"""Which tasks of a playbook a run takes: by tags, and from which task on."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from emq_ops.playbook.errors import did_you_mean, wrong
from emq_ops.playbook.model import Playbook, Task


@dataclass(frozen=True)
class Selection:
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


def select(playbook: Playbook, tags: list[str], skip: list[str], start_at: str | None) -> Selection:
    """The selection that a command line means. Raises PlaybookError for a tag or a task that is not there."""
    known = {tag for _, task in playbook.tasks() for tag in task.tags}
    for option, given in (("--tags", tags), ("--skip-tags", skip)):
        for tag in given:
            if tag not in known and tag not in SPECIAL:
                wrong(option, f"no task has the tag '{tag}'", did_you_mean(tag, known | set(SPECIAL)))
    first = 0
    if start_at is not None:
        names = [task.name for _, task in playbook.tasks()]
        found = [t.order for _, t in playbook.tasks() if t.name == start_at or fnmatch.fnmatchcase(t.name, start_at)]
        if not found:
            wrong("--start-at-task", f"no task is called '{start_at}'", did_you_mean(start_at, names))
        first = found[0]
    return Selection(frozenset(tags), frozenset(skip), first)
