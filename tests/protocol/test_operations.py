"""Every recorded further operation agrees, but for the differences that docs/protocol.md lists, which differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emq_ops.protocol.conformance.deliberate import DIFFERENCES, deliberate, table
from emq_ops.protocol.conformance.replay import CALLS as BASIC
from emq_ops.protocol.conformance.replay import Vector, read_vectors, replay, replay_all
from emq_ops.protocol.server import Server
from emq_ops.worker.conformance import CALLS as WORKERS
from tests.support.cli import emq
from tests.support.keyspace import recorded

CALLS = {**BASIC, **WORKERS}
DIFFERENT = {
    "delay_in-010-odd": "not in hand",
    "delay_at-011-odd": "not in hand",
    "delay_in-014-odd": "the lane's place",
    "delay_at-013-odd": "the lane's place",
    "claim_weighted-017-odd": "a damaged row",
    "claim_lane_batch-017-odd": "a damaged row",
    "stream_append-005": "a stream ahead of the clock",
    "stream_append_batch-005-odd": "a stream ahead of the clock",
    "enqueue_many-003": "nothing to enqueue",
    "add_flow-012-odd": "a flow that can't end",
    "add_flow-020-odd": "a flow that is there",
    "add_flows-006-odd": "a flow that can't end",
    "complete_flow-011-odd": "a reaped child",
    "complete_flow-013-odd": "a parent that does not wait",
    "complete_flow-015-odd": "a parent that does not wait",
    "complete_flow-023-odd": "a parent's books",
    "retry_flow-015-odd": "a parent that does not wait",
    "retry_flow-019-odd": "a child that settles again",
    "deliver_flows-016-odd": "a parent that does not wait",
    "deliver_flows-018-odd": "an unreadable entry",
    "deliver_flows-020-odd": "an unreadable entry",
    "deliver_flows-022-odd": "a parent that does not wait",
    "batch_consume-016-odd": "an unknown verdict",
    "locks-007-odd": "a lock without a row",
    "pump-009-odd": "a repeatable without a period",
}
"""The recordings that differ on purpose, and the listed difference that each is a case of."""
JOB, OTHER, LANE, LANE_2 = "JOB0STEUahbvyI", "JOB0STEUst4ecU", "GRP0STEUsr5Si1", "GRP0STEXlPLTY9"
ROW = {"hash": {"attempts": "1", "payload": "x", "state": "active", "group": LANE}}
WAITING = {"hash": {"attempts": "0", "payload": "x", "state": "pending", "group": LANE}}
_Q = "emq:{orders}:"
MADE: dict[str, tuple[str, dict[str, Any], dict[str, Any], Any, dict[str, Any]]] = {
    "an odd weight": (
        "claim_weighted",
        {
            "g:" + LANE + ":pending": {"zset": {JOB: 0}},
            "job:" + JOB: WAITING,
            "ring": {"list": [LANE]},
            "gweight": {"hash": {LANE: "abc"}},
        },
        {"lease_ms": 1000},
        {"error": "ERR user_script: attempt to compare nil with number"},
        {},
    ),
    "a lane of another name": (
        "weight_lane",
        {},
        {"group": OTHER, "weight": 2},
        1,
        {"gweight": {"hash": {OTHER: "2"}}},
    ),
    "lapsed behind others": (
        "reap_lane",
        {
            "active": {"zset": {JOB: "@-9000", OTHER: "@-5000"}},
            "job:" + JOB: {"hash": {**ROW["hash"], "group": LANE_2}},
            "job:" + OTHER: ROW,
            "gactive": {"hash": {LANE: "1", LANE_2: "1"}},
        },
        {"group": LANE, "limit": 1},
        0,
        {},
    ),
    "half a flow": (
        "add_flow",
        {},
        {
            "parent": {"id": JOB, "payload": "p"},
            "children": [{"id": "EVT0STEUahbvyI", "payload": "c", "queue": "mail"}],
        },
        {"error": "EMQKIND job id must be JOB-namespaced"},
        {
            "job:" + JOB: {"hash": {"state": "awaiting_children", "attempts": "0", "payload": "p"}},
            "job:" + JOB + ":dependencies": {"string": "1"},
        },
    ),
    "a lock outside of active": (
        "locks",
        {"job:" + JOB: {"hash": {"attempts": "1", "state": "pending"}}, "pending": {"zset": {JOB: 0}}},
        {"lease_ms": 1000, "steps": [["track", JOB, 1], ["beat"]]},
        [1, [1, []]],
        {"active": {"zset": {JOB: "@+1000"}}},
    ),
    "a longer lease": (
        "locks",
        {"job:" + JOB: ROW, "active": {"zset": {JOB: "@+90000"}}},
        {"lease_ms": 1000, "steps": [["track", JOB, 1], ["beat"]]},
        [1, [1, []]],
        {"active": {"zset": {JOB: "@+1000"}}},
    ),
    "own entries at a restart": (
        "stream_consume",
        {
            "stream:s": {
                "stream": {
                    "entries": [["1795953695000-28672", ["id", "EVT0ST8PFY0AQC", "n", "0"]]],
                    "groups": [
                        {
                            "name": "g",
                            "last_delivered": "1795953695000-28672",
                            "pending": [["1795953695000-28672", "w", 1, 0]],
                        }
                    ],
                    "last_id": "1795953695000-28672",
                }
            }
        },
        {
            "stream": "s",
            "group": "g",
            "consumer": "w",
            "start": "head",
            "min_idle_ms": 60000,
            "count": 10,
            "deliveries": 3,
            "verdicts": {"*": {"error": "no"}},
        },
        [["EVT0ST8PFY0AQC", {"n": "0"}, attempts] for attempts in (2, 3, 4)],
        {},
    ),
    "an implausible instant": (
        "delay_at",
        {"job:" + JOB: ROW, "active": {"zset": {JOB: "@+9000"}}},
        {"id": JOB, "token": 1, "run_at": 5},
        1,
        {},
    ),
    "keys of another type": (
        "claim_batch",
        {"pending": {"string": "x"}},
        {"size": 1, "lease_ms": 5},
        {"error": "WRONGTYPE Operation against a key holding the wrong kind of value"},
        {},
    ),
}
"""What the reference does where no recording shows it: op, keys before, arguments, reply, keys that differ after."""


def _vectors(path: Path) -> list[Vector]:
    return read_vectors(path, CALLS)


def known_operations() -> list[Vector]:
    """The vectors of what a queue's operations are, without those that differ."""
    return [v for v in _vectors(recorded("operations.json")) if v.op in BASIC and v.name not in DIFFERENT]


def test_every_recorded_operation_agrees_or_differs_on_purpose(server: Server) -> None:
    vectors = _vectors(recorded("operations.json"))
    found, other = {}, {}
    for vector, verdict in zip(vectors, replay_all(server, vectors, CALLS), strict=True):
        if not verdict.agrees:
            why = deliberate(vector, verdict)
            found[vector.name] = why.name if why else None
            other |= {} if why else {vector.name: verdict.lines}
    assert other == {}
    assert found == DIFFERENT


@pytest.mark.parametrize("name", MADE)
def test_a_difference_that_no_recording_shows(name: str, server: Server) -> None:
    op, given, args, reply, changed = MADE[name]
    before = {_Q + key: value for key, value in given.items()}
    after = {**before, **{_Q + key: value for key, value in changed.items()}}
    vector = Vector(name, op, "orders", before, args, reply, after)
    verdict = replay(server, vector, calls=CALLS)
    assert not verdict.agrees
    found = deliberate(vector, verdict)
    assert found is not None
    assert found.name == name


def test_each_listed_difference_is_shown_and_documented() -> None:
    assert {one.name for one in DIFFERENCES} == {*DIFFERENT.values(), *MADE}
    assert table() in (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def test_the_command_tells_each_difference_and_fails_for_any_other(tmp_path: Path) -> None:
    document = json.loads(recorded("operations.json").read_bytes())
    some = [v for v in document["vectors"] if v["op"] in ("delay_in", "locks", "batch_consume", "stream_consume")]
    path = tmp_path / "some.json"
    path.write_text(json.dumps({**document, "vectors": some}))
    ran = emq("conformance", str(path))
    assert ran.code == 0, ran
    assert "delay_in-010-odd differs on purpose: not in hand: refused" in ran.out
    assert ran.out.endswith(f"{len(some) - 4} of {len(some)} transitions agree, 4 differ on purpose\n")
    wrong = next(v for v in some if v["name"] == "locks-001")
    path.write_text(json.dumps({**document, "vectors": [{**wrong, "reply": [7]}]}))
    ran = emq("conformance", str(path), "--output", "json")
    assert (ran.code, ran.json[0]["on_purpose"], ran.json[0]["agrees"]) == (1, None, False)
