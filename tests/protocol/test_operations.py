"""Every recorded further operation agrees, but for the differences that docs/protocol.md lists, which differ."""

from __future__ import annotations

import json
from pathlib import Path

from emq_ops.protocol.conformance.replay import CALLS, Vector, replay_all
from emq_ops.protocol.server import Server
from tests.support.keyspace import recorded

DIFFERENT = {
    "delay_in-010-odd": "a job that waits is not delayed",
    "delay_at-011-odd": "a dead job is not delayed",
    "delay_in-014-odd": "a delayed job gives its lane's place back",
    "delay_at-013-odd": "a delayed job gives its lane's place back",
    "claim_weighted-017-odd": "an id without a row is set aside",
    "claim_lane_batch-017-odd": "an id without a row is set aside",
    "stream_append-005": "an id that can't be followed is told in words of ours",
    "stream_append_batch-005-odd": "a refusal of single entries is told",
    "enqueue_many-003": "nothing to enqueue is no error",
}
NOT_YET = {
    *("add_flow", "add_flows", "children_values", "ignored_failures", "dependencies", "complete_flow", "retry_flow"),
    *("deliver_flows", "pump", "pump_twice", "batch_consume", "stream_consume", "locks"),
}


def _vectors(path: Path) -> list[Vector]:
    document = json.loads(path.read_bytes())["vectors"]
    return [Vector(**{name: entry[name] for name in Vector.__dataclass_fields__}) for entry in document]


def known_operations() -> list[Vector]:
    """The vectors of what we can do, without those that differ."""
    return [v for v in _vectors(recorded("operations.json")) if v.op in CALLS and v.name not in DIFFERENT]


def test_every_recorded_operation_agrees_or_differs_on_purpose(server: Server) -> None:
    vectors = _vectors(recorded("operations.json"))
    assert {vector.op for vector in vectors} - set(CALLS) == NOT_YET
    known = [vector for vector in vectors if vector.op in CALLS]
    disagreeing = {v.vector: v.lines for v in replay_all(server, known) if not v.agrees}
    assert {name: lines for name, lines in disagreeing.items() if name not in DIFFERENT} == {}
    assert set(DIFFERENT) <= set(disagreeing)
