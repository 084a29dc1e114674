"""First sight of many queues at once: it leaves what a first sweep of each would, and only where that finds nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from emq_ops.ledger import interruptions, runs
from emq_ops.ledger.interruptions import Contact
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.holder import DAEMON
from emq_ops.passes.observe.mark_idle import mark_idle_queues
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions.jobs import remove
from tests.support.passing import add, kill_row, leading, stall, sweep, swept, take, trimmed
from tests.support.valkey import Valkey

NAMES = [f"q{n}" for n in range(5)]


def contact(ledger: Ledger, queue: str) -> Contact | None:
    with ledger.read() as connection:
        return interruptions.contact_of(connection, queue)


def untimed(found: Contact | None) -> Contact:
    assert found is not None
    assert found.seen_ms > 0
    return dataclasses.replace(found, seen_ms=0)


def swept_by_the_daemon(server: Server, ledger: Ledger, queue: str) -> bool:
    """A sweep as the daemon runs it; whether it was idle."""
    with leading(server, ledger, queue) as fence:
        return sweep(server, queue, StalledPolicy(), ledger, fence, trigger=DAEMON).idle


def test_it_leaves_what_a_first_sweep_leaves(server: Server, ledger: Ledger) -> None:
    for name in NAMES:
        add(Queue(server, name), 2)
    assert swept_by_the_daemon(server, ledger, "q0")
    assert sorted(mark_idle_queues(server, ledger, NAMES)) == NAMES
    first = untimed(contact(ledger, "q0"))
    for name in NAMES[1:]:
        assert untimed(contact(ledger, name)) == dataclasses.replace(first, token=0)  # nobody led it yet
    assert runs.latest(ledger) == []
    assert sorted(mark_idle_queues(server, ledger, [*NAMES, "never-seen"])) == ["never-seen", *NAMES]


def _sampled(q: Queue, ledger: Ledger) -> None:
    add(q)
    take(q, lease_ms=60_000)
    assert swept_by_the_daemon(q.server, ledger, q.name)
    job = q.server.read("ZRANGE", q.keys.active, 0, -1)[0].decode()
    q.server.write("ZREM", q.keys.active, job)


BUSY: dict[str, Callable[[Queue, Ledger], object]] = {
    "a lease that lapsed": lambda q, _ledger: stall(q),
    "a job in flight": lambda q, _ledger: (add(q), take(q, lease_ms=60_000)),
    "a lease that a pass looked at": _sampled,
    "a dead job that the ledger does not know": lambda q, _ledger: kill_row(q, 1),
    "a key of another kind": lambda q, _ledger: q.server.write("SET", q.keys.active, "x"),
}


@pytest.mark.parametrize("make", BUSY.values(), ids=BUSY)
def test_what_a_pass_would_look_at_is_left_to_it(
    server: Server, ledger: Ledger, make: Callable[[Queue, Ledger], object]
) -> None:
    make(Queue(server, "q1"), ledger)
    before = contact(ledger, "q1")
    assert sorted(mark_idle_queues(server, ledger, ["q0", "q1", "q2"])) == ["q0", "q2"]
    assert contact(ledger, "q1") == before


def test_deaths_that_are_known_and_those_that_are_not(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "q0")
    jobs = stall(q, 2)
    assert swept(server, ledger, "q0").dead == 2
    assert sorted(mark_idle_queues(server, ledger, ["q0"])) == ["q0"]
    remove(q, jobs[0])
    assert mark_idle_queues(server, ledger, ["q0"]) == {}  # one is dead no more: a pass has to close its death
    assert trimmed(server, ledger, "q0", keep=5, archive=False).removed == 0
    assert sorted(mark_idle_queues(server, ledger, ["q0"])) == ["q0"]


def test_a_server_that_restarted_is_no_calm_sight(durable: Valkey, ledger: Ledger) -> None:
    with connect(durable.url) as server:
        assert sorted(mark_idle_queues(server, ledger, ["q0"])) == ["q0"]
        add(Queue(server, "q1"))
    durable.restart()
    with connect(durable.url) as server:
        # One was seen before the restart; of the other the keyspace tells that it came from the disk.
        assert mark_idle_queues(server, ledger, ["q0", "q1"]) == {}
        assert contact(ledger, "q1") is None
