"""What a step will do, from what was read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from emq_ops.deploy import loss
from emq_ops.deploy.model import LiveQueue, Refusal, Step, StreamBacklog
from emq_ops.passes.observe.pumps import UNCLAIMED, Pumping, unfired

Env = Mapping[str, str]
Json = dict[str, Any]


def stalled_effect(step: Step, facts: LiveQueue) -> None:
    """Who else recovers leases of this queue."""
    if step.op == "delete":
        _left(step, facts.left.get("stalled"), "in flight that nothing of ours recovers any more", "job")
        return
    for kind in ("recoverer", "sweeper"):
        if kind in facts.rivals:
            step.notes.append(f"competing {kind}: {facts.rivals[kind]}; a sweep beside it sees little")


def promote_effect(step: Step, facts: LiveQueue) -> None:
    """What waits for its time when nobody of ours promotes any more."""
    if step.op == "delete":
        _left(step, facts.left.get("promote"), "that nothing of ours promotes any more", "scheduled job")


def lands_flat(fields: Json) -> bool:
    """Whether repeatables of a queue, as the YAML says them, fire into flat pending by a pass of ours."""
    repeatables = (fields.get("settings") or {}).get("repeatables") or {}
    return bool(fields.get("promote")) and any(not one.get("lane") for one in repeatables.values())


def pump_faults(queue: str, fields: Json, facts: LiveQueue, env: Env) -> tuple[list[Refusal], list[str]]:
    """Why `promote` may not run on a queue; what a plan warns of its repeatables."""
    refusals, warnings = [], []
    promote = fields.get("promote")
    if promote and facts.pumped and not loss.switch(promote.get("beside_pump"), env):
        what = f"{queue}: another pump fires its repeatables, so with `promote` beside it they would fire twice"
        refusals.append(Refusal(what, "stop it for a day, or promote: {beside_pump: true}"))
    declared = (fields.get("settings") or {}).get("repeatables") or {}
    seen = facts.pumping or Pumping(0)
    if not promote:
        dated = sum(1 for one in declared.values() if one.get("cron"))
        seen = replace(
            seen,
            periods=max(seen.periods, len(declared) - dated),
            by_calendar=max(seen.by_calendar, dated),
        )
        said = unfired(seen, pumped=facts.pumped)
        warnings += [f"{queue}: {said}"] if said else []
    elif lands_flat(fields) and not (facts.flat is not None and facts.flat.claimed):
        flat = ", ".join(name for name, one in declared.items() if not one.get("lane"))
        warnings.append(f"{queue}: jobs of {flat} wait in flat pending, and {UNCLAIMED}; `lane:` says another place")
    return refusals, warnings


def _left(step: Step, count: int | None, what: str, thing: str) -> None:
    """What a policy that goes leaves behind."""
    if count:
        step.notes.append(f"{count:,} {thing}{'s' if count != 1 else ''} {what}")


def dead_effect(step: Step, facts: LiveQueue, *, protected: bool) -> None:
    """Which dead jobs the new policy would let go."""
    if step.op == "delete":
        _left(step, facts.left.get("dead"), "that nothing of ours trims any more", "dead job")
    if step.op == "delete" or facts.dead is None:
        return
    dead = facts.dead
    ids = () if protected else dead.victims
    step.effect = {"dead": dead.count, "remove": len(ids), "ids": list(ids), "as_of": dead.now_ms}
    if protected:
        step.notes.append("protect: true, so nothing is trimmed")
    step.notes += dead.notes


def stream_effect(step: Step, stream: StreamBacklog | None, facts: LiveQueue, *, protected: bool) -> None:
    """How many records the new policy would fold, and let go of afterwards."""
    if step.op == "delete":
        name = step.address.rpartition("/streams/")[2]
        _left(step, facts.left.get(f"streams/{name}"), "that nothing of ours archives or trims any more", "record")
        return
    if "archiver" in facts.rivals:
        step.notes.append(f"another archiver trims a stream here: {facts.rivals['archiver']}")
    if stream is None:
        return
    step.effect = {
        "records": stream.length,
        "fold": stream.fold,
        "trim": 0 if protected else stream.trim,
    }
    if stream.at_least:
        step.effect["at_least"] = True
    if protected:
        step.notes.append("protect: true, so nothing is trimmed")
