"""What a step will do, from what was read. Pure."""

from __future__ import annotations

from emq_ops.deploy.model import LiveQueue, Step, StreamBacklog


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
