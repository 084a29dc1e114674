"""One restart that touched many queues is one line of a table; JSON has what it was for each."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from emq_ops.audit.dead import audit_dead
from emq_ops.audit.page import dead_page, restarts_page
from emq_ops.audit.restarts import InterruptionOutcome, audit_restarts
from emq_ops.audit.server_events import format_count, group_by_event
from emq_ops.ledger.interruptions import Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import claims
from tests.audit.working import LONG_MS, put, swept
from tests.support.cli import emq
from tests.support.valkey import Valkey

QUEUES = ("billing", "mail", "orders", "push", "sms")


def told(
    queue: str, kind: str = "restart", life: str = "b", started: int | None = 0, ended: int = 9
) -> InterruptionOutcome:
    cut = Interruption(queue, kind, "a", life, started, ended, ended, ended, in_flight=2, exempted=1)
    return InterruptionOutcome(cut, others=1)


def test_a_restart_is_one_row_of_a_table_and_one_a_queue_elsewhere(durable: Valkey, ledger: Ledger, state: str) -> None:
    with connect(durable.url) as server:
        for queue in QUEUES:
            put(Queue(server, queue), 2)
            claims.claim_batch(Queue(server, queue), LONG_MS, 2)
            swept(server, ledger, queue)
    durable.restart()
    with connect(durable.url) as server:
        for queue in QUEUES:
            swept(server, ledger, queue)
    ran = emq("audit", "restarts", "--state", state)
    header, row = ran.out.splitlines()
    assert header.split()[:2] == ["queues", "kind"]
    assert row.split()[:3] == ["5", "queues", "restart"]
    assert row.split()[5:] == ["10", "0", "0", "0", "0", "10"]
    assert ran.err == "1 interruption (5 with each queue's own), 0 bursts\n"
    document = json.loads(emq("audit", "restarts", "--state", state, "--output", "json").out)
    assert sorted(one["queue"] for one in document["interruptions"]) == sorted(QUEUES)
    assert {one["in_flight"] for one in document["interruptions"]} == {2}
    numbers = {one["queue"]: str(one["id"]) for one in document["interruptions"]}
    lines = emq("audit", "restarts", "--state", state, "--output", "csv").out.splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [[number, queue] for queue, number in numbers.items()]
    mail = emq("audit", "restarts", "mail", "--state", state).out.splitlines()[1].split()
    assert (mail[:2], mail[-1]) == (["mail", "restart"], numbers["mail"])  # as `audit dead --interruption` takes it
    assert "5 queues" in restarts_page(audit_restarts(ledger))
    with connect(durable.url) as server:
        assert "5 queues" in dead_page(audit_dead(server, QUEUES, DeadSelection(), ledger))


def test_a_first_sight_of_a_server_that_had_loaded_its_data_is_one_event(
    durable: Valkey, ledger: Ledger, state: str
) -> None:
    """Each queue has leases of an earlier life to be judged; what the operator sees is one restart."""
    with connect(durable.url) as server:
        for queue in QUEUES[:2]:
            put(Queue(server, queue), 1)
    durable.restart()
    with connect(durable.url) as server:
        for queue in QUEUES[:2]:
            swept(server, ledger, queue)
    [row] = emq("audit", "restarts", "--state", state).out.splitlines()[1:]
    assert row.split()[:3] == ["billing,", "mail", "restart"]


def test_an_event_went_from_the_last_sign_of_life_to_the_first() -> None:
    """Whichever queue has it: the server was alive at 7, and there again at 20."""
    one, another = told("x", started=3, ended=20), told("y", started=7, ended=25)
    [event] = group_by_event([one, another])
    assert (event.last_alive_ms, event.back_ms) == (7, 20)
    assert (one.as_row()["started_is"], one.as_row()["ended_is"]) == (
        "last seen alive",
        "its process began, to a second",
    )
    assert (told("x", "outage").as_row()["ended_is"], told("x", started=None).as_row()["started_is"]) == (
        "seen again",
        None,
    )


def test_failovers_to_and_fro_are_told_apart() -> None:
    first = [told(q, "failover", started=at, ended=at + 5) for at, q in enumerate("xyz")]
    again = [told(q, "failover", started=100 + at, ended=105 + at) for at, q in enumerate("zx")]
    other = [told("x", "failover", life="c"), told("x", "outage", started=None), told("y", "outage", started=None)]
    found = group_by_event([*first, *again, *other])
    assert [event.queues for event in found] == ["x, y, z", "z, x", "x", "x", "y"]
    assert [event.as_row()["in_flight"] for event in found] == [6, 4, 2, 2, 2]
    assert format_count(found[:1]) == "1 interruption (3 with each queue's own)"
    assert format_count(found[2:]) == "3 interruptions"


CUTS = st.lists(
    st.builds(
        told,
        st.sampled_from("xyz"),
        st.sampled_from(["restart", "failover", "outage"]),
        st.sampled_from("bc"),
        st.one_of(st.none(), st.integers(0, 20)),
        st.integers(20, 40),
    ),
    max_size=12,
)


@given(CUTS)
def test_nothing_is_lost_or_counted_twice_and_no_queue_is_twice_in_an_event(cuts: list[InterruptionOutcome]) -> None:
    found = group_by_event(cuts)
    assert sorted(id(one) for event in found for one in event.outcomes) == sorted(map(id, cuts))
    assert sum(event.as_row()["in_flight"] for event in found) == 2 * len(cuts)
    for event in found:
        assert len({one.cut.queue for one in event.outcomes}) == len(event.outcomes)
        assert len({(one.cut.kind, one.cut.run_after) for one in event.outcomes}) == 1
