"""The journal of applies: which step was begun, which is done. An apply that was killed is told from it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select, update

from emq_ops.deploy.model import Interrupted, Step, Write
from emq_ops.ledger.deploy_schema import applies, apply_steps
from emq_ops.ledger.ledger import host_ms

RUNNING, DONE, FAILED, REPAIRED = "running", "done", "failed", "repaired"
KEPT = 1000
"""Applies that are remembered."""


def begin(connection: Connection, *, base: int | None, holder: str, steps: int) -> int:
    """A new apply; answers its id."""
    values = {"base": base, "status": RUNNING, "holder": holder, "started_ms": host_ms(), "steps": steps}
    key = connection.execute(applies.insert().values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def begin_steps(connection: Connection, apply: int, steps: Iterable[tuple[Step, Write, Any]]) -> None:
    """Notes that steps are about to have their effect: each with its write, and what is there before."""
    rows = [
        {
            "apply": apply,
            "step": step.number,
            "queue": step.queue,
            "setting": write.setting,
            "status": "begun",
            "before": json.dumps(before),
            "after": json.dumps(write.value),
            "at_ms": host_ms(),
        }
        for step, write, before in steps
    ]
    connection.execute(apply_steps.insert(), rows)


def end_steps(connection: Connection, apply: int, first: Step, last: Step) -> None:
    """Notes that the steps from `first` to `last` had it."""
    mine = (apply_steps.c.apply == apply, apply_steps.c.step.between(first.number, last.number))
    connection.execute(update(apply_steps).where(*mine).values(status="done", at_ms=host_ms()))


def end(
    connection: Connection, apply: int, status: str, *, revision: int | None = None, error: str | None = None
) -> None:
    """The apply ended; earlier ones that did not are repaired by one that is done."""
    values = {"status": status, "ended_ms": host_ms(), "revision": revision, "error": error}
    connection.execute(update(applies).where(applies.c.id == apply).values(values))
    if status == DONE:
        repair(connection, before=apply)
    connection.execute(applies.delete().where(applies.c.id <= apply - KEPT, applies.c.status.in_((DONE, REPAIRED))))


def fail(connection: Connection, apply: int, error: str) -> None:
    """The apply stopped on an error. One that had not begun a step leaves nothing to see to."""
    begun = connection.execute(select(apply_steps.c.step).where(apply_steps.c.apply == apply).limit(1)).first()
    end(connection, apply, FAILED if begun else REPAIRED, error=error)


def repair(connection: Connection, *, before: int | None = None) -> None:
    """Closes applies that did not end: what they left is seen to."""
    open_ = applies.c.status.in_((RUNNING, FAILED))
    wanted = update(applies).where(open_) if before is None else update(applies).where(open_, applies.c.id < before)
    connection.execute(wanted.values(status=REPAIRED, ended_ms=host_ms()))


def interrupted(connection: Connection) -> Interrupted | None:
    """The apply that did not end, with what it may have left; of several, the latest one with the steps of all."""
    wanted = select(applies).where(applies.c.status.in_((RUNNING, FAILED))).order_by(applies.c.id)
    rows = connection.execute(wanted).mappings().all()
    if not rows:
        return None
    left: dict[tuple[str, str], tuple[Any, Any]] = {}
    step = 0
    last = rows[-1]
    for row in rows:
        steps = connection.execute(
            select(apply_steps).where(apply_steps.c.apply == row["id"]).order_by(apply_steps.c.step)
        ).mappings()
        step = 0
        for one in steps:
            before, after = json.loads(one["before"]), json.loads(one["after"])
            key = (one["queue"], one["setting"])
            left[key] = (left[key][0] if key in left else before, after)
            step = int(one["step"])
    return Interrupted(int(last["id"]), last["holder"], int(last["started_ms"]), step, int(last["steps"]), left)
