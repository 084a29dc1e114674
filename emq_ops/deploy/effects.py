"""What a step will do, from what was read. Pure."""

from __future__ import annotations

from emq_ops.deploy.model import LiveQueue, Step, StreamFacts


def stalled_effect(step: Step, facts: LiveQueue) -> None:
    """Who else recovers leases of this queue."""
    if step.op == "delete":
        return
    for kind in ("recoverer", "sweeper"):
        if kind in facts.rivals:
            step.notes.append(f"competing {kind}: {facts.rivals[kind]}; a sweep beside it sees little")


def dead_effect(step: Step, facts: LiveQueue, *, protected: bool) -> None:
    """Which dead jobs the new policy would let go."""
    if step.op == "delete" or facts.dead is None:
        return
    dead = facts.dead
    ids = () if protected else dead.victims
    step.effect = {"dead": dead.count, "remove": len(ids), "ids": list(ids), "as_of": dead.now_ms}
    if protected:
        step.notes.append("protect: true, so nothing is trimmed")
    step.notes += dead.notes


def stream_effect(step: Step, stream: StreamFacts | None, facts: LiveQueue, *, protected: bool) -> None:
    """How many records the new policy would fold, and let go of afterwards."""
    if step.op == "delete":
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
