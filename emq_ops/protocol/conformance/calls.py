"""The operations of a queue (`transitions.json`), as the public calls that they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emq_ops.protocol.conformance.values import raw
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, leases, reads, recover, settle

Args = dict[str, Any]


def _ids(found: list[str]) -> list[bytes]:
    return [i.encode("ascii") for i in found]


def _claimed(claim: claims.Claim | None) -> list[Any]:
    if claim is None:
        return []
    reply: list[Any] = [claim.job.encode("ascii"), claim.payload, claim.token]
    return reply if claim.group is None else [*reply, claim.group.encode("ascii")]


def _row(done: bool) -> int:
    return 1 if done else -1


def _verb(call: Callable[[Queue, Args], object]) -> Callable[[Queue, Args], int]:
    """A verb that returns nothing: the recordings write 1."""

    def answer(q: Queue, args: Args) -> int:
        call(q, args)
        return 1

    return answer


def _swept(swept: recover.Swept) -> list[list[bytes]]:
    return [_ids(swept.recovered), _ids(swept.dead)]


def _counts(c: reads.Counts) -> list[int]:
    return [c.pending, c.active, c.schedule, c.dead, c.completed, c.failed]


def _add_log(q: Queue, a: Args) -> int:
    lines = jobs.add_log(q, a["id"], raw(a["line"]), keep=a["keep"])
    return -1 if lines is None else lines


CALLS: dict[str, Callable[[Queue, Args], Any]] = {
    "enqueue": lambda q, a: int(enqueue.enqueue(q, a["id"], raw(a["payload"]))),
    "enqueue_lane": lambda q, a: int(enqueue.enqueue(q, a["id"], raw(a["payload"]), group=a["group"])),
    "schedule_in": lambda q, a: int(
        enqueue.schedule_in(q, a["id"], raw(a["payload"]), a["delay_ms"], group=a.get("group"))
    ),
    "schedule_at": lambda q, a: int(
        enqueue.schedule_at(q, a["id"], raw(a["payload"]), a["run_at"], group=a.get("group"))
    ),
    "claim": lambda q, a: _claimed(claims.claim(q, a["lease_ms"], gate=False)),
    "claim_lane": lambda q, a: _claimed(claims.claim_lane(q, a["lease_ms"], gate=False)),
    "complete": lambda q, a: int(settle.complete(q, a["id"], a["token"])),
    "retry": lambda q, a: settle.retry(
        q, a["id"], a["token"], settle.Failure(raw(a["error"]), delay_ms=a["delay_ms"], max_attempts=a["max_attempts"])
    ).value.encode("ascii"),
    "promote": lambda q, a: recover.promote(q, a["limit"]),
    "reap": lambda q, _: recover.reap(q),
    "extend_lock": lambda q, a: int(leases.extend(q, a["id"], a["token"], a["lease_ms"])),
    "extend_locks": lambda q, a: _ids(leases.extend_many(q, [(i, t) for i, t in a["held"]], a["lease_ms"])),
    "sweep_stalled": lambda q, a: _swept(recover.sweep(q, a["max_stalled"], a["limit"])),
    "remove_job": lambda q, a: _row(jobs.remove(q, a["id"])),
    "reprocess_job": lambda q, a: _row(jobs.reprocess(q, a["id"])),
    "update_data": lambda q, a: _row(jobs.update_payload(q, a["id"], raw(a["payload"]))),
    "update_progress": lambda q, a: _row(jobs.update_progress(q, a["id"], raw(a["progress"]))),
    "add_log": _add_log,
    "pause_queue": _verb(lambda q, _: control.pause_queue(q)),
    "resume_queue": _verb(lambda q, _: control.resume_queue(q)),
    "pause_lane": _verb(lambda q, a: control.pause_lane(q, a["group"])),
    "resume_lane": _verb(lambda q, a: control.resume_lane(q, a["group"])),
    "limit_lane": _verb(lambda q, a: control.limit_lane(q, a["group"], a["limit"])),
    "drain": lambda q, a: control.drain(q, include_schedule=a["include_schedule"]),
    "drain_lane": lambda q, a: control.drain_lane(q, a["group"]),
    "obliterate": lambda q, a: int(not control.obliterate(q, force=a["force"], budget=a["budget"])),
    "job_state": lambda q, a: reads.job_state(q, a["id"]).value.encode("ascii"),
    "counts": lambda q, _: _counts(reads.counts(q)),
}
