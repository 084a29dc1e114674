"""Where recordings differ from emq-ops on purpose: the table that ``docs/protocol.md`` shows.

A difference is told by the facts of a vector, not by its name: other recordings of the same operations show the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emq_ops.protocol.conformance import cases
from emq_ops.protocol.conformance.facts import VectorFacts
from emq_ops.protocol.conformance.replay import Replayed, Vector


@dataclass(frozen=True, slots=True)
class Difference:
    """`ops`: the operations in whose recordings it shows; `what`: what emq-ops does; `why`: what the reference's way
    leads to; `shows`: whether a vector (its facts, and what the replay came to) is a case of it."""

    name: str
    ops: tuple[str, ...]
    what: str
    why: str
    shows: Callable[[VectorFacts, Vector, Replayed], bool]


_DELAYS = ("delay_in", "delay_at")
_CLAIMS = ("claim_batch", "claim_weighted", "claim_lane_batch", "batch_consume")
_SETTLES = ("complete_flow", "retry_flow")
_PUMPS = ("deliver_flows", "pump", "pump_twice")
_APPENDS = ("stream_append", "stream_append_batch")
DIFFERENCES = (
    Difference(
        "not in hand",
        _DELAYS,
        "refused: `EMQSTATE job is not in hand`",
        "the job would stand in two sets",
        cases.not_in_hand,
    ),
    Difference(
        "the lane's place",
        _DELAYS,
        "lane and ring rule, as in retry",
        "a limited lane would stop for good",
        cases.lane_only,
    ),
    Difference(
        "a damaged row",
        _CLAIMS,
        "an id without a row, or without attempts, is set aside",
        "a handler would get a payload that nobody sent",
        cases.damaged,
    ),
    Difference(
        "an odd weight",
        ("claim_weighted", "weight_lane"),
        "refused before anything is claimed",
        "jobs would be active that nobody has, and `gactive` without them",
        cases.odd_weight,
    ),
    Difference(
        "a lane of another name",
        (*_CLAIMS, "weight_lane", "reassign_lane", "reap_lane", "lane_depth", "lane_depths"),
        "only `GRP` ids name lanes",
        "narrower than the wire, and checked before a key is built",
        cases.other_lane,
    ),
    Difference(
        "lapsed behind others",
        ("reap_lane",),
        "all lapsed leases are looked through",
        "others in front would hide the lane",
        cases.behind_others,
    ),
    Difference(
        "a flow that can't end",
        ("add_flow", "add_flows"),
        "no children, or one twice: refused",
        "the parent would wait for ever",
        cases.twice_or_childless,
    ),
    Difference(
        "a flow that is there",
        ("add_flow", "add_flows"),
        "rows that exist are left as they are",
        "a running child would run twice",
        cases.there_already,
    ),
    Difference(
        "half a flow",
        ("add_flow", "add_flows"),
        "a refusal writes nothing",
        "a parent and some of its children would be left behind",
        cases.half_written,
    ),
    Difference(
        "a reaped child",
        _SETTLES,
        "it tells its parent all the same",
        "the parent would wait for ever",
        cases.reaped_child,
    ),
    Difference(
        "a parent that does not wait",
        (*_SETTLES, *_PUMPS, "batch_consume"),
        "only one that is `awaiting_children` is released or dies; one that is gone hears nothing",
        "a dead or running parent would run again, and rows of a state alone come up",
        cases.not_waiting,
    ),
    Difference(
        "a child that settles again",
        _SETTLES,
        "it is counted once",
        "the parent would be released too early",
        cases.heard_of,
    ),
    Difference("a parent's books", _SETTLES, "they go with its row", "they would stay for ever", cases.own_books),
    Difference(
        "an unreadable entry",
        _PUMPS,
        "set aside with the reason, the others are delivered",
        "one entry would stop the delivery for good",
        cases.unreadable,
    ),
    Difference(
        "a repeatable without a period",
        ("pump", "pump_twice", "repeat_due", "repeat_advance"),
        "nothing is admitted, the others fire",
        "one more job at every restart of the pump, and nothing behind it",
        cases.no_period,
    ),
    Difference(
        "a stream ahead of the clock",
        _APPENDS,
        "ids are settled above the last one; what can't be followed is refused, all or none",
        "a writer's clock would lose records, in a batch without a word",
        cases.ahead,
    ),
    Difference(
        "an unknown verdict",
        ("batch_consume",),
        "it retries that job alone",
        "the loop would end, and the rest stay leased",
        cases.crashed,
    ),
    Difference(
        "a lock without a row", ("locks",), "not tracked", "a row of `lock` alone would come up", cases.without_row
    ),
    Difference(
        "a lock outside of active",
        ("locks",),
        "a beat extends only what is in active",
        "a swept job would run twice",
        cases.not_active,
    ),
    Difference(
        "a longer lease",
        ("locks",),
        "a beat never shortens it",
        "a handler's own checkpoint would be undone",
        cases.longer_lease,
    ),
    Difference(
        "own entries at a restart",
        ("stream_consume",),
        "read once, by a moving cursor; the trimmed are acknowledged",
        "one failing or trimmed entry would hold up a restart for ever",
        cases.own_pending,
    ),
    Difference("nothing to enqueue", ("enqueue_many",), "an empty reply", "nothing to do is no error", cases.nothing),
    Difference(
        "an implausible instant",
        (*_DELAYS, *_PUMPS, *_SETTLES, "reap_lane", "stream_read_window", "stream_read_since", "stream_trim_minid"),
        "instants outside of 2020 to 2100 are refused, such scores set aside",
        "seconds taken for milliseconds would make every lease lapsed",
        cases.implausible,
    ),
    Difference(
        "keys of another type",
        ("*",),
        "`EMQDATA` with the key, before the first write",
        "the server's own error comes after half a transition",
        cases.wrong_type,
    ),
)


def deliberate(vector: Vector, replayed: Replayed) -> Difference | None:
    """The listed difference that a disagreement is a case of; None where it is none."""
    facts = VectorFacts(vector.queue, vector.given, vector.args)
    for one in DIFFERENCES:
        if (vector.op in one.ops or one.ops == ("*",)) and one.shows(facts, vector, replayed):
            return one
    return None


def table() -> str:
    """The differences as ``docs/protocol.md`` shows them."""
    lines = ["| difference | operations | emq-ops | else |", "|---|---|---|---|"]
    for one in DIFFERENCES:
        ops = "all" if one.ops == ("*",) else ", ".join(f"`{op}`" for op in one.ops)
        lines.append(f"| {one.name} | {ops} | {one.what} | {one.why} |")
    return "\n".join(lines) + "\n"
