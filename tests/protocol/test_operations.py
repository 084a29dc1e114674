"""Every recorded further operation agrees, but for the differences that docs/protocol.md lists, which differ."""

from __future__ import annotations

import json
from pathlib import Path

from emq_ops.protocol.conformance.replay import CALLS as BASIC
from emq_ops.protocol.conformance.replay import Vector, replay_all
from emq_ops.protocol.server import Server
from emq_ops.worker.conformance import CALLS as WORKERS
from tests.support.keyspace import recorded

CALLS = {**BASIC, **WORKERS}
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
    "add_flow-012-odd": "a child that stands twice is refused",
    "add_flow-020-odd": "a parent that is there is left as it is",
    "add_flows-006-odd": "a parent without children is refused",
    "complete_flow-011-odd": "a child whose lease was reaped tells its parent all the same",
    "complete_flow-013-odd": "a dead parent is not released",
    "complete_flow-015-odd": "a parent in hand is not released",
    "complete_flow-023-odd": "the books of a parent go with it",
    "retry_flow-015-odd": "a parent that is gone hears nothing",
    "retry_flow-019-odd": "a child that dies again is counted once",
    "deliver_flows-016-odd": "a dead parent is not released",
    "deliver_flows-018-odd": "an entry that can't be read is set aside, the others are delivered",
    "deliver_flows-020-odd": "an entry that can't be read is set aside, the others are delivered",
    "deliver_flows-022-odd": "a parent that is gone hears nothing",
    "batch_consume-016-odd": "an unknown verdict retries that job alone",
    "locks-007-odd": "a job without a row is not marked",
    "pump-009-odd": "a repeatable without a period fires nothing, and the pump goes on",
}
NOT_YET: set[str] = set()


def _vectors(path: Path) -> list[Vector]:
    document = json.loads(path.read_bytes())["vectors"]
    return [Vector(**{name: entry[name] for name in Vector.__dataclass_fields__}) for entry in document]


def known_operations() -> list[Vector]:
    """The vectors of what we can do, without those that differ."""
    return [v for v in _vectors(recorded("operations.json")) if v.op in BASIC and v.name not in DIFFERENT]


def test_every_recorded_operation_agrees_or_differs_on_purpose(server: Server) -> None:
    vectors = _vectors(recorded("operations.json"))
    assert {vector.op for vector in vectors} - set(CALLS) == NOT_YET
    known = [vector for vector in vectors if vector.op in CALLS]
    disagreeing = {v.vector: v.lines for v in replay_all(server, known, CALLS) if not v.agrees}
    assert {name: lines for name, lines in disagreeing.items() if name not in DIFFERENT} == {}
    assert set(DIFFERENT) <= set(disagreeing)
