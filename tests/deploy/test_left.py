"""Taking a queue, or a pass of it, out of the YAML says what is left to itself."""

from __future__ import annotations

from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import keys_of
from tests.deploy.conftest import Desk

KEYS = keys_of("orders")
WHOLE = (
    "archive: {}\nqueues: {orders: {stalled: {}, dead: {keep: 9}, streams: {completions: {}}}, mail: {stalled: {}}}\n"
)


def test_a_queue_that_goes(light_desk: Desk) -> None:
    light_desk.apply(WHOLE, allow_loss=True)
    for _ in range(5):
        light_desk.server.write("ZADD", KEYS.active, 1, mint("JOB"))
    light_desk.server.write("ZADD", KEYS.dead, 1, mint("JOB"))
    for _ in range(3):
        light_desk.server.write("XADD", KEYS.stream("completions"), "*", "id", mint("EVT"))
    plan = light_desk.propose("archive: {}\nqueues: {mail: {stalled: {}}}\n").plan
    assert {step.address: step.notes for step in plan.steps} == {
        "orders/stalled": ["5 jobs in flight that nothing of ours recovers any more"],
        "orders/dead": ["1 dead job that nothing of ours trims any more"],
        "orders/streams/completions": ["3 records that nothing of ours archives or trims any more"],
    }


def test_scheduled_jobs_that_nobody_promotes(light_desk: Desk) -> None:
    light_desk.apply("queues: {orders: {promote: {every: 1s}}, mail: {stalled: {}}}\n")
    light_desk.server.write("ZADD", KEYS.schedule, 1, mint("JOB"))
    [step] = light_desk.propose("queues: {mail: {stalled: {}}}\n").plan.steps
    assert step.notes == ["1 scheduled job that nothing of ours promotes any more"]


def test_a_pass_that_goes_and_nothing_there(light_desk: Desk) -> None:
    light_desk.apply(WHOLE, allow_loss=True)
    text = "archive: {}\nqueues: {orders: {dead: {keep: 9}, streams: {completions: {}}}, mail: {stalled: {}}}\n"
    plan = light_desk.propose(text).plan
    assert {step.address: step.notes for step in plan.steps} == {"orders/stalled": []}
