"""Modules about event streams and lanes: stream_append, stream_trim, reassign."""

from __future__ import annotations

from typing import Any, ClassVar

from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, SAME, Decision, Result
from emq_ops.playbook.errors import TaskFailure
from emq_ops.playbook.foretold import PENDING, RECORDS
from emq_ops.playbook.options import ANY, COUNT, DURATION, GROUP, JOBS, REQUIRED, TEXT, Option
from emq_ops.playbook.registry import Module
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import stream_name
from emq_ops.protocol.transitions import lanes, streams
from emq_ops.protocol.transitions.lanes import Reassigned
from emq_ops.protocol.transitions.streams import StreamRecord

LOOKED_AT = 1000
"""Of a stream's newest records, for one that was appended already."""
ONCE = "once"
SLICE = 500


def _stream(options: dict[str, Any]) -> str:
    try:
        return stream_name(options["stream"])
    except BadInputError as fault:
        raise TaskFailure(fault.what) from fault


class StreamAppend(Module):
    """Adds a record."""

    name = "stream_append"
    reads = frozenset({RECORDS})
    moves = frozenset({RECORDS})
    summary = "Adds a record to an event stream, once: a note of what was done, for whoever reads the stream."
    check = "would change, or would not; exact"
    options = (
        Option("stream", TEXT, "the stream", REQUIRED),
        Option("fields", ANY, "names and texts", REQUIRED),
        Option(
            "once",
            TEXT,
            "nothing is added where one of the last 1,000 records has this; without it: one a run and task",
        ),
    )
    returns: ClassVar = {"event": "the record's EVT id ('' in check mode)"}

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Whether it is there already."""
        fields, stream = options["fields"], _stream(options)
        if not isinstance(fields, dict) or not fields:
            raise TaskFailure("fields is no mapping of names to texts", fix="{who: deploy, version: '1.2'}")
        found = self._there(ctx, stream, options["once"]) if options["once"] else None
        if found is not None:
            return Decision(SAME, message="it is there", returns={"event": found.event})
        data = {"once": options["once"] or f"{ctx.run} {ctx.step}"}
        diff: list[tuple[str, Any, Any]] = [(f"stream {stream}", None, "a record more")]
        return Decision(CHANGE, 1, [stream], diff=diff, data=data, returns={"event": ""})

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Adds it, unless a try before this one did."""
        stream, once = _stream(options), plan.data["once"]
        found = self._there(ctx, stream, once) if resumed else None
        if found is not None:
            return Result(True, 1, plan.items, returns={"event": found.event})
        pairs = [(str(name), str(value)) for name, value in options["fields"].items()]
        event = streams.append(ctx.queue, stream, [*pairs, (ONCE, once)])
        return Result(True, 1, plan.items, returns={"event": event})

    @staticmethod
    def _there(ctx: TaskContext, stream: str, once: str) -> StreamRecord | None:
        q = ctx.queue
        newest = q.server.read("XREVRANGE", q.keys.stream(stream), "+", "-", "COUNT", LOOKED_AT)
        records = (streams.record(entry_id, flat) for entry_id, flat in newest)
        return next((one for one in records if (ONCE.encode(), once.encode()) in one.fields), None)


class StreamTrim(Module):
    """Takes old records away."""

    name = "stream_trim"
    reads = frozenset({RECORDS})
    moves = frozenset({RECORDS})
    summary = "Takes records off the head of a stream that nobody archives, as far as no consumer group needs them."
    check = "would change (how many records), or would not; exact while nobody reads or appends"
    destructive = True
    options = (
        Option("stream", TEXT, "the stream", REQUIRED),
        Option("keep", COUNT, "exactly so many records stay"),
        Option("max_age", DURATION, "older records go"),
    )
    needs_one = ("keep", "max_age")
    exclusive = (("keep", "max_age"),)
    returns: ClassVar = {
        "removed": "how many records are gone",
        "held_by": "what keeps records that were to go: a consumer group, or 'archive'; '' nothing",
    }
    adds = ("removed",)

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """How many would go."""
        stream = _stream(options)
        if stream in ctx.policy.streams:
            raise TaskFailure(
                f"the config archives stream {stream}, and trims what is archived", fix="take the module archive"
            )
        bounds = self._bounds(ctx, options)
        found = streams.retain(ctx.queue, stream, **bounds, count_only=True)
        returns = {"removed": found.removed, "held_by": found.held_by or ""}
        message = f"{found.held_by} needs what is from {found.from_id} on" if found.held_by else ""
        if not found.removed:
            return Decision(SAME, message=message, returns=returns)
        length = streams.length(ctx.queue, stream)
        diff: list[tuple[str, Any, Any]] = [
            (f"stream {stream}", f"{length} records", f"{length - found.removed} records")
        ]
        plan = Decision(CHANGE, found.removed, [stream], found.removed, message=message, diff=diff, returns=returns)
        plan.data = {"bounds": bounds, "length": length}
        return plan

    @staticmethod
    def _bounds(ctx: TaskContext, options: dict[str, Any]) -> dict[str, int]:
        if options["keep"] is not None:
            return {"keep": options["keep"]}
        return {"before_ms": ctx.queue.server.now_ms(ctx.queue.name) - options["max_age"]}

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Trims to the bounds that were decided on: doing so twice is doing so once."""
        stream = _stream(options)
        done = streams.retain(ctx.queue, stream, **plan.data["bounds"])
        removed = done.removed
        if resumed:
            removed = max(removed, plan.data["length"] - streams.length(ctx.queue, stream))
        message = f"{done.held_by} needs what is from {done.from_id} on" if done.held_by else ""
        returns = {"removed": removed, "held_by": done.held_by or ""}
        return Result(removed > 0, removed, plan.items, message, returns)


class Reassign(Module):
    """Puts waiting jobs into another lane."""

    name = "reassign"
    reads = frozenset({PENDING})
    moves = frozenset({PENDING})
    summary = "Puts jobs that wait in a lane into another one, such as out of a paused lane."
    check = "would change (which), or would not; exact"
    options = (
        Option("ids", JOBS, "the jobs", REQUIRED, empty_is_error=True),
        Option("lane", GROUP, "the lane that they go to, by its GRP id", REQUIRED),
    )
    returns: ClassVar = {"moved": "ids that are in that lane now", "stayed": "ids that wait in no lane, or are gone"}

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Which wait in a lane of their own."""
        q, ids, lane = ctx.queue, sorted(set(options["ids"])), options["lane"]
        groups = q.server.read_many([("HGET", q.keys.row(job), "group") for job in ids])
        names = [group.decode("utf-8", "replace") if group else "" for group in groups]
        keys = [q.keys.lane(name) if name.startswith("GRP") else q.keys.pending for name in names]
        waits = q.server.read_many([("ZSCORE", key, job) for key, job in zip(keys, ids, strict=True)])
        moved, stayed, diff = [], [], []
        for job, name, score in zip(ids, names, waits, strict=True):
            if name == lane:
                continue
            if not name or score is None:
                stayed.append(job)
                continue
            moved.append(job)
            diff.append((job, name, lane))
        returns = {"moved": moved, "stayed": stayed}
        return Decision(CHANGE if moved else SAME, len(moved), moved, diff=diff, data={"ids": ids}, returns=returns)

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Moves each that was named; one that is there already stays."""
        moved, stayed = [], []
        for number, job in enumerate(plan.data["ids"]):
            went = lanes.reassign(ctx.queue, job, options["lane"])
            if went is Reassigned.MOVED or (went is Reassigned.THERE_ALREADY and resumed and job in plan.items):
                moved.append(job)
            elif went is not Reassigned.THERE_ALREADY:
                stayed.append(job)
            if number % SLICE == SLICE - 1:
                ctx.go_on()
        return Result(bool(moved), len(moved), moved, returns={"moved": moved, "stayed": stayed})
