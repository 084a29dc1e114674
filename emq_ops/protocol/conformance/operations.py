"""The further operations (`operations.json`): lanes, delays, streams, repeatables, reads, as public calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emq_ops.protocol import ids
from emq_ops.protocol.conformance.held import locks
from emq_ops.protocol.conformance.values import raw
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import (
    claims,
    control,
    enqueue,
    flows,
    jobs,
    lanes,
    reads,
    recover,
    repeat,
    settle,
    streams,
)

Args = dict[str, Any]
Call = Callable[[Queue, Args], Any]


def _claims(found: list[claims.Claim]) -> list[list[Any]]:
    lanes_of = [[] if c.group is None else [c.group.encode("ascii")] for c in found]
    return [[c.job.encode("ascii"), c.payload, c.token, *lane] for c, lane in zip(found, lanes_of, strict=True)]


def _done(call: Callable[[Queue, Args], object]) -> Call:
    """A verb that returns nothing: the recordings write 1."""

    def answer(q: Queue, args: Args) -> int:
        call(q, args)
        return 1

    return answer


def _fields(recorded: list[list[Any]]) -> list[tuple[bytes, bytes]]:
    return [(raw(name), raw(value)) for name, value in recorded]


def _records(found: list[streams.StreamRecord]) -> list[Any]:
    return [[record.event.encode("ascii"), dict(record.fields)] for record in found]


def _enqueue_many(q: Queue, args: Args) -> list[Any]:
    """A malformed id refuses all before anything is sent; one of another namespace is refused alone."""
    ours = [_is_job(job) for job, _ in args["jobs"]]
    admitted = enqueue.enqueue_many(
        q, [enqueue.NewJob(job, raw(payload)) for (job, payload), fine in zip(args["jobs"], ours, strict=True) if fine]
    )
    for one in admitted:
        if isinstance(one, EmqError):
            raise one
    told = iter(admitted)
    return [int(bool(next(told))) if fine else b"kind" for fine in ours]


def _is_job(job: str) -> bool:
    return ids.parse(job).namespace == "JOB"


def _due(q: Queue, args: Args) -> list[Any]:
    return [[name.encode("utf-8"), *repeat.fields(q, name)] for name in repeat.due(q, args["limit"])]


def _flow(recorded: Args) -> flows.FlowJob:
    return flows.FlowJob(
        recorded["id"],
        raw(recorded["payload"]),
        recorded.get("queue"),
        flows.ParentPolicy.IGNORE if recorded.get("policy") == "ignore" else flows.ParentPolicy.FAIL,
        tuple(_flow(child) for child in recorded.get("children", ())),
    )


def _parent(args: Args) -> flows.FlowJob:
    return _flow({**args["parent"], "children": args["children"]})


def _nested(one: flows.FlowJob, *, deep: bool) -> list[Any]:
    job = one.job.encode("ascii")
    children = [_nested(child, deep=True) if deep else child.job.encode("ascii") for child in one.children]
    return [job, children]


def _added(one: flows.FlowJob) -> list[Any]:
    return _nested(one, deep=any(child.children for child in one.children))


def _add_flow(q: Queue, args: Args) -> Any:
    root = _parent(args)
    return _added(root) if flows.add(q, root) else 0


def _add_flows(q: Queue, args: Args) -> list[Any]:
    roots = [_parent(one) for one in args["flows"]]
    return [_added(root) for root, done in zip(roots, flows.add_many(q, roots), strict=True) if done is True]


def _complete_flow(q: Queue, args: Args) -> int:
    result = raw(args["result"]) if args.get("result") is not None else None
    return int(settle.complete(q, args["id"], args["token"], result=result))


def _retry_flow(q: Queue, args: Args) -> bytes:
    failure = settle.Failure(raw(args["error"]), delay_ms=args["delay_ms"], max_attempts=args["max_attempts"])
    return settle.retry(q, args["id"], args["token"], failure).value.encode("ascii")


def _pump(q: Queue, args: Args) -> list[int]:
    promoted = recover.promote(q, args["batch"])
    fired = repeat.fire(q, args["batch"])
    return [promoted, len(fired.jobs), flows.deliver(q, args["batch"]).delivered]


def _texts(found: dict[str, bytes]) -> dict[bytes, bytes]:
    return {child.encode("utf-8"): text for child, text in found.items()}


def _read_logs(q: Queue, args: Args) -> Any:
    return jobs.read_logs(q, args["id"]) if jobs.read_row(q, args["id"]) else -1


def _stalled(q: Queue, args: Args) -> int:
    row = jobs.read_row(q, args["id"]) or {}
    return int(row.get(b"stalled", b"0"))


def _is_maxed(q: Queue, _: Args) -> int:
    reads.expect_below_ceiling(q)
    return 0


CALLS: dict[str, Call] = {
    "delay_in": _done(lambda q, a: settle.delay_in(q, a["id"], a["token"], a["delay_ms"])),
    "delay_at": _done(lambda q, a: settle.delay_at(q, a["id"], a["token"], a["run_at"])),
    "enqueue_many": _enqueue_many,
    "claim_batch": lambda q, a: _claims(claims.claim_batch(q, a["lease_ms"], a["size"])),
    "claim_weighted": lambda q, a: _claims(claims.claim_lane_turn(q, a["lease_ms"], weighted=True)),
    "claim_lane_batch": lambda q, a: _claims(claims.claim_lane_turn(q, a["lease_ms"])),
    "weight_lane": _done(lambda q, a: control.weight_lane(q, a["group"], a["weight"])),
    "reassign_lane": lambda q, a: lanes.reassign(q, a["id"], a["group"]).value,
    "reap_lane": lambda q, a: recover.reap_lane(q, a["group"], a["limit"]),
    "lane_depth": lambda q, a: reads.lane_depths(q, [a["group"]])[a["group"]],
    "lane_depths": lambda q, a: {g.encode("ascii"): n for g, n in reads.lane_depths(q, a["groups"]).items()},
    "repeat_register": lambda q, a: int(
        repeat.register(q, a["name"], a["every_ms"], raw(a["template"]), first_in_ms=a["first_in_ms"])
    ),
    "repeat_cancel": lambda q, a: int(repeat.cancel(q, a["name"])),
    "repeat_advance": lambda q, a: int(repeat.skip(q, a["name"], a["every_ms"])),
    "repeat_due": _due,
    "add_flow": _add_flow,
    "add_flows": _add_flows,
    "children_values": lambda q, a: _texts(flows.children_values(q, a["id"])),
    "ignored_failures": lambda q, a: _texts(flows.ignored_failures(q, a["id"])),
    "dependencies": lambda q, a: flows.dependencies(q, a["id"]),
    "complete_flow": _complete_flow,
    "retry_flow": _retry_flow,
    "deliver_flows": lambda q, a: flows.deliver(q, a["batch"]).delivered,
    "pump": _pump,
    "pump_twice": lambda q, a: [_pump(q, a), _pump(q, a)],
    "stream_append": lambda q, a: streams.append(q, a["stream"], _fields(a["fields"])).encode("ascii"),
    "stream_append_id": lambda q, a: streams.append_id(q, a["stream"], a["id"], _fields(a["fields"])).encode("ascii"),
    "stream_append_batch": lambda q, a: [
        event.encode("ascii") for event in streams.append_many(q, a["stream"], [_fields(r) for r in a["records"]])
    ],
    "stream_read": lambda q, a: _records(streams.read(q, a["stream"], a["from"], a["to"], count=a["count"])),
    "stream_read_window": lambda q, a: _records(
        streams.window(q, a["stream"], a["from_ms"], a["to_ms"], count=a["count"])
    ),
    "stream_read_since": lambda q, a: _records(streams.since(q, a["stream"], a["from_ms"], count=a["count"])),
    "stream_trim_maxlen": lambda q, a: streams.trim_maxlen(q, a["stream"], a["count"], approx=a["approx"]),
    "stream_trim_minid": lambda q, a: streams.trim_before(q, a["stream"], a["before_ms"], approx=a["approx"]),
    "put_archived": _done(lambda q, a: streams.put_archived(q, a["stream"], a["id"])),
    "get_archived": lambda q, a: streams.get_archived(q, a["stream"]) or -1,
    "clear_archived": lambda q, a: int(streams.clear_archived(q, a["stream"])),
    "locks": locks,
    "rate_limit_ttl": lambda q, a: reads.rate_wait_ms(q, a["max_jobs"]),
    "rate_limit": lambda q, a: reads.rate(q) or 0,
    "is_maxed": _is_maxed,
    "dedup_job": lambda q, a: (reads.dedup_owner(q, a["dedup_id"]) or "").encode("utf-8") or -1,
    "remove_job_dedup": lambda q, a: 1 if jobs.remove(q, a["id"], dedup_id=a["dedup_id"]) else -1,
    "metrics": lambda q, a: list(reads.data_points(q, a["which"])),
    "read_job": lambda q, a: jobs.read_row(q, a["id"]) or -1,
    "job_stalled": _stalled,
    "read_logs": _read_logs,
    "browse": lambda q, a: [job.encode("ascii") for job in reads.newest(q, a["n"])],
    "pending_size": lambda q, a: reads.counts(q).pending,
}
