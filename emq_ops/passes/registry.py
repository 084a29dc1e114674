"""Every pass there is: the one list that daemon tasks, run requests, commands, playbook modules and the YAML read."""

from __future__ import annotations

from emq_ops.passes.acts.declared import (
    DRAIN,
    EDIT,
    LIMIT_LANE,
    MOVE,
    OBLITERATE,
    PAUSE,
    REHYDRATE,
    REMOVE,
    REQUEUE,
    RESUME,
    UNDO,
    WEIGHT_LANE,
)
from emq_ops.passes.archive.declared import ARCHIVE
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.promote.declared import PROMOTE
from emq_ops.passes.sweep.declared import SWEEP
from emq_ops.passes.trim.declared import TRIM
from emq_ops.passes.upkeep.declared import COMPACT, VERIFY

EVERY: tuple[Pass, ...] = (
    SWEEP,
    TRIM,
    ARCHIVE,
    PROMOTE,
    COMPACT,
    VERIFY,
    REQUEUE,
    REMOVE,
    UNDO,
    PAUSE,
    RESUME,
    DRAIN,
    MOVE,
    EDIT,
    LIMIT_LANE,
    WEIGHT_LANE,
    OBLITERATE,
    REHYDRATE,
)
PASSES = tuple(one for one in EVERY if not one.on_demand)
"""Those that recur: they have a section in the YAML, and can be asked of the daemon that leads."""


def by_name(name: str) -> Pass | None:
    """The pass called `name` in runs and requests, None where there is none."""
    return next((one for one in EVERY if one.name == name), None)
