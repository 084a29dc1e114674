"""Due repeatables fire: each in one script that admits the occurrence and advances the repeatable, or does neither."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.refusal import PumpedError
from emq_ops.passes.observe.pumps import look_at_pumps, note_pump, pumped_lately
from emq_ops.passes.promote.report import PromoteReport
from emq_ops.passes.report import name_some
from emq_ops.policy.triggers import parse_cron
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.transitions import repeat
from emq_ops.protocol.transitions.repeat import DueRepeatable, FireReply

SLICE = 100


def check_pump(context: Context) -> None:
    """Raises PumpedError where another pump fires this queue's repeatables and the policy does not say that ours may
    beside it."""
    seen = look_at_pumps(context.server, [context.queue]).get(context.queue)
    if seen is not None and seen.marks:
        note_pump(context.server, context.ledger, context.emit, context.queue, seen)
    if not context.policy.beside_pump and pumped_lately(context.ledger, context.queue, context.now_ms):
        raise PumpedError(
            "another pump fires this queue's repeatables: with ours beside it they fire twice",
            where=context.queue,
            fix="stop it for a day, or promote: {beside_pump: true}",
        )


def fire_due(context: Context, fence: Fence) -> None:
    """Fires what is due, up to the policy's limit: one occurrence each, after however long a gap. One that can't fire
    is set aside and holds up no other."""
    q, report = Queue(context.server, context.queue), context.report
    _add_lost(context, q)
    for key in (q.keys.repeat, q.keys.calendar):
        past = 0
        while True:
            limit = context.policy.limit
            room = SLICE if limit is None else min(SLICE, limit - report.fired)
            if room <= 0:
                return
            if context.budget.up:
                report.more = True
                return
            now_ms, due = repeat.look(q, key, room, past=past)
            if due:
                past += len(due) - _fire(context, q, fence, now_ms, due)
            if len(due) < room:
                break


def _fire(context: Context, q: Queue, fence: Fence, now_ms: int, due: Sequence[DueRepeatable]) -> int:
    """Fires one slice; returns how many of them are not due any more."""
    report: PromoteReport = context.report
    tried: dict[str, DueRepeatable] = {}
    calls = []
    for one in due:
        try:
            following = following_ms(one, now_ms)
        except ValueError as fault:
            report.bad[one.name] = f"its line of cron is bad: {fault}"
            continue
        job = mint()
        tried[job] = one
        calls.append((repeat.fire_keys(q, job), repeat.fire_args(q, one, job, fence.args, following)))
    context.carried["tried"] = tried
    replies = q.server.run_many(load("repeat_fire"), calls)
    gone, first = 0, None
    for (job, one), reply in zip(list(tried.items()), replies, strict=True):
        if isinstance(reply, EmqError):
            first = first or reply
            continue
        del tried[job]
        went, why = repeat.fire_reply(reply)
        gone += went is not FireReply.BAD
        if went is FireReply.FIRED:
            report.fired += 1
            name_some(report.fired_jobs, [job])
        elif went is FireReply.BAD:
            report.bad[one.name] = why
    if first is not None:
        raise first
    return gone


def following_ms(one: DueRepeatable, now_ms: int) -> int | None:
    """The next instant (unix ms) of one that goes by the calendar, after `now_ms`; None for one with a period. Raises
    ValueError for a line that is none."""
    if not one.cron:
        return None
    after = datetime.fromtimestamp(now_ms / 1000, UTC)
    return int(parse_cron(one.cron, one.zone or None).next_fire(after).timestamp() * 1000)


def _add_lost(context: Context, q: Queue) -> None:
    """Occurrences whose reply was lost: those of which the row is there, or which are not due as they were."""
    tried: dict[str, DueRepeatable] = context.carried.pop("tried", {})
    for job, one in tried.items():
        key = q.keys.calendar if one.cron else q.keys.repeat
        there, score = q.server.read_many(
            [("EXISTS", q.keys.row(job)), ("ZSCORE", key, one.name.encode("utf-8", "surrogateescape"))]
        )
        if there or (score is not None and score != one.score):
            context.report.fired += 1
            name_some(context.report.fired_jobs, [job])
