"""From effective fields to what passes take: the policy dataclasses, with references resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from emq_ops.config.effective import Fields
from emq_ops.config.models import Archiving, Dead, Redact, Stalled, StreamSection, Task
from emq_ops.config.references import resolve
from emq_ops.policy.models import ArchivePolicy, DeadPolicy, Schedule, StalledPolicy, StreamPolicy
from emq_ops.policy.schedule import Cron, Interval
from emq_ops.policy.schedule import Schedule as Timetable
from emq_ops.protocol.errors import BadInputError

Env = Mapping[str, str]


def checked(model: type[Any], fields: Mapping[str, Any], env: Env, where: str = "") -> Any:
    """The model of a section of a revision. Raises BadInputError where a reference gives what can't be taken."""
    try:
        return model.model_validate(fields, context={"env": env})
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        path = ".".join(([where] if where else []) + [str(part) for part in first["loc"]])
        hint = first.get("ctx", {}).get("hint")
        raise BadInputError(f"{path}: expected {first['msg']}", fix=hint or None) from None


def _schedule(task: Task) -> Schedule:
    trigger = task.every
    cron = trigger if isinstance(trigger, Cron) else None
    return Schedule(
        every_ms=trigger.ms if isinstance(trigger, Interval) else None,
        cron=cron.line if cron else None,
        zone=cron.zone if cron else "UTC",
        jitter_ms=task.jitter,
        max_late_ms=task.max_late,
        timeout_ms=task.timeout,
        coalesce=task.coalesce,
    )


def timetable(schedule: Schedule) -> Timetable:
    """A policy's schedule as something that answers when it is due."""
    trigger = Interval(schedule.every_ms) if schedule.every_ms is not None else Cron(schedule.cron or "", schedule.zone)
    return Timetable(trigger, schedule.jitter_ms, schedule.max_late_ms, schedule.timeout_ms, schedule.coalesce)


def _archiving(section: Archiving, env: Env) -> ArchivePolicy:
    redact = section.redact or Redact()
    return ArchivePolicy(
        segment_bytes=section.segment,
        ship_after_ms=section.ship_after,
        trim_after=section.trim_after,  # type: ignore[arg-type]  # the model takes these two words only
        local_keep_ms=section.local_keep,
        expire_after_ms=section.expire_after,
        compact_grace_ms=section.compact_grace,
        redact_drop=redact.drop,
        redact_hash=redact.hash,
        redact_salt=resolve(redact.salt, env) if redact.salt else "",
    )


def stalled_policy(fields: Fields, env: Env, *, protect: bool = False) -> StalledPolicy:
    """The sweep's policy. Raises BadInputError where a reference gives what can't be taken."""
    task: Stalled = checked(Stalled, fields, env)
    return StalledPolicy(
        schedule=_schedule(task),
        max_stalled=task.max_stalled,
        limit=task.limit,
        lease_ms=task.lease,
        restart=task.restart,  # type: ignore[arg-type]  # the model takes these two words only
        max_exempt=task.max_exempt,
        executor=task.executor,  # type: ignore[arg-type]  # as above
        max_removals=task.max_removals,
        max_share=task.max_share,
        protect=protect,
    )


def dead_policy(fields: Fields, env: Env, *, protect: bool = False) -> DeadPolicy:
    """The dead trim's policy. Raises BadInputError where a reference gives what can't be taken."""
    task: Dead = checked(Dead, fields, env)
    return DeadPolicy(
        schedule=_schedule(task),
        keep=task.keep,
        max_age_ms=task.max_age,
        age_by=task.age_by,  # type: ignore[arg-type]  # the model takes these two words only
        archive=task.archive,
        archiving=_archiving(task, env),
        protect=protect,
        max_removals=task.max_removals,
    )


def stream_policy(fields: Fields, env: Env, *, protect: bool = False) -> StreamPolicy:
    """A stream's policy. Raises BadInputError where a reference gives what can't be taken."""
    task: StreamSection = checked(StreamSection, fields, env)
    return StreamPolicy(
        schedule=_schedule(task),
        keep=task.keep,
        max_age_ms=task.max_age,
        groups=task.groups,  # type: ignore[arg-type]  # the model takes these two words only
        archiving=_archiving(task, env),
        protect=protect,
        max_removals=task.max_removals,
    )
