"""The modules: what a task can do. Each documents itself (`emq-ops play --modules`)."""

from __future__ import annotations

from emq_ops.passes.archive.declared import ARCHIVE
from emq_ops.passes.registry import PASSES
from emq_ops.passes.sweep.declared import SWEEP
from emq_ops.passes.trim.declared import TRIM
from emq_ops.playbook.modules import acts, archive, control, dead, jobs, logic, operate, placing, recover, streams
from emq_ops.playbook.modules.passing import module_of
from emq_ops.playbook.registry import Module

OF_THEIR_OWN = (SWEEP, TRIM, ARCHIVE)
"""Passes that have a module with more to say."""
MODULES: dict[str, Module] = {
    module.name: module
    for module in (
        recover.Sweep(),
        recover.Reap(),
        *(module_of(what) for what in PASSES if what not in OF_THEIR_OWN and not what.of_archive),
        archive.TrimDead(),
        archive.ArchiveStreams(),
        dead.Audit(),
        acts.Requeue(),
        acts.Remove(),
        dead.Rehydrate(),
        control.Pause(),
        control.Resume(),
        control.LimitLane(),
        control.WeightLane(),
        control.Drain(),
        control.Obliterate(),
        jobs.Cancel(),
        jobs.Extend(),
        streams.Reassign(),
        streams.StreamAppend(),
        streams.StreamTrim(),
        placing.DelayJobs(),
        operate.Maintenance(),
        operate.Health(),
        operate.WaitFor(),
        logic.Assert(),
        logic.SetFact(),
        logic.Debug(),
        logic.Fail(),
    )
}
"""Every module by name. ``include`` is part of the language and not here."""
