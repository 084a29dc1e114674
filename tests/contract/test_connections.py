"""One contract for every kind of connection: whatever the URL names, the same calls have the same effects."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from emq_ops.protocol import deadline, keyspace
from emq_ops.protocol.errors import (
    DamagedError,
    DeadlineError,
    IncompatibleError,
    OutcomeUnknownError,
    ReconnectedError,
    ServerError,
    StaleTokenError,
    StateError,
    UnreachableError,
)
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.slots import slot
from emq_ops.protocol.transitions.claims import claim
from emq_ops.protocol.transitions.control import pause_queue
from emq_ops.protocol.transitions.enqueue import enqueue
from emq_ops.protocol.transitions.jobs import reprocess, update_progress
from emq_ops.protocol.transitions.reads import JobState, counts, job_state
from emq_ops.protocol.transitions.settle import complete
from emq_ops.protocol.wire_fence import claim_version, version_of
from tests.contract.places import KINDS, Place, open_place
from tests.support import roles

QUEUES = ("orders", "mail", "reports", "render", "a b", "x*y", "ä", "q7")
"""Over all three nodes of a Cluster (see test_queues_are_spread)."""


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with open_place(request.param, tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture
def server(place: Place) -> Iterator[Server]:
    with connect(place.url, place.options, base_dir=place.base_dir) as opened:
        place.empty()
        yield opened


def test_queues_are_spread() -> None:
    shares = {slot(keyspace.keys_of(name).base) // 5461 for name in QUEUES}
    assert shares == {0, 1, 2}


def test_bytes_pass_unchanged(server: Server) -> None:
    q = Queue(server, "orders")
    payload = bytes(range(256)) * 100
    job = mint()
    assert enqueue(q, job, payload)
    held = claim(q, 60_000)
    assert held is not None
    assert (held.job, held.payload, held.token) == (job, payload, 1)


def test_repeated_fields_of_a_stream_entry_survive(server: Server) -> None:
    key = keyspace.keys_of("orders").stream("audit")
    server.write("XADD", key, "1-1", "tag", "a", "tag", "b", "note", "x")
    assert server.read("XRANGE", key, "-", "+") == [[b"1-1", [b"tag", b"a", b"tag", b"b", b"note", b"x"]]]


def test_an_unknown_script_is_loaded_once_on_each_node(server: Server, place: Place) -> None:
    for name in QUEUES:
        assert enqueue(Queue(server, name), mint(), b"")
    for admin in place.admins():
        admin.script_flush()
    for name in QUEUES:
        assert claim(Queue(server, name), 60_000) is not None
    assert server.queues() == sorted(QUEUES)


def test_many_calls_over_many_queues_in_order(server: Server, place: Place) -> None:
    for admin in place.admins():
        admin.script_flush()  # every node answers NOSCRIPT in the middle of the flush
    count = 400 if place.kind == "tls" else 2_500  # a terminator in Python takes its time
    script = load("enqueue")
    calls = []
    for number in range(count):
        q = Queue(server, QUEUES[number % len(QUEUES)])
        job = mint()
        calls.append(([q.keys.row(job), q.keys.pending], (job, b"%d" % number)))
        if number % 100 == 0:
            calls.append(calls[-1])  # a second time: 0
    replies = server.run_many(script, calls)
    expected = []
    for number in range(count):
        expected += [1, 0] if number % 100 == 0 else [1]
    assert replies == expected
    assert sum(counts(Queue(server, name)).pending for name in QUEUES) == count


def test_an_error_of_one_call_stays_in_its_place(server: Server) -> None:
    q = Queue(server, "mail")
    jobs = [mint() for _ in range(3)]
    for job in jobs:
        enqueue(q, job, b"")
        claim(q, 60_000)
    script = load("complete")
    calls = [
        ([q.keys.active, q.keys.row(job), q.keys.completed], (q.keys.base, job, token))
        for job, token in zip(jobs, (1, 9, 1), strict=True)
    ]
    first, second, third = server.run_many(script, calls)
    assert (first, third) == (1, 1)
    assert isinstance(second, StaleTokenError)
    assert second.what == "EMQSTALE complete token mismatch"


def test_reads_come_in_order(server: Server) -> None:
    for number, name in enumerate(QUEUES):
        server.write("HSET", keyspace.keys_of(name).meta, "concurrency", number)
    keys = [keyspace.keys_of(QUEUES[n % len(QUEUES)]).meta for n in range(2_400)]
    replies = server.read_many([("HGET", key, "concurrency") for key in keys])
    assert replies == [b"%d" % (n % len(QUEUES)) for n in range(2_400)]


def test_refusals_come_as_their_class_with_the_text_of_the_wire(server: Server) -> None:
    q = Queue(server, "reports")
    job = mint()
    enqueue(q, job, b"")
    with pytest.raises(StateError) as refused:
        reprocess(q, job)
    assert refused.value.what.startswith("EMQSTATE not dead")
    with pytest.raises(ServerError, match="unknown command") as unknown:
        server.read("NOSUCH", "x")
    assert unknown.value.code == "ERR"
    server.write("SET", q.keys.ring, "no list")
    with pytest.raises(DamagedError, match="ring"):
        server.read("LRANGE", q.keys.ring, 0, -1)


def test_a_wrong_type_inside_a_script_is_damage(server: Server) -> None:
    q = Queue(server, "render")
    server.write("SET", q.keys.pending, "no set")
    job = mint()
    with pytest.raises(DamagedError):
        enqueue(q, job, b"")
    assert server.read("EXISTS", q.keys.row(job)) == 0


def test_clock_and_life_of_the_node_that_owns_the_queue(server: Server, place: Place) -> None:
    lives = {admin.info("server")["run_id"] for admin in place.admins()}
    assert {server.run_id(name) for name in QUEUES} == lives
    assert abs(server.now_ms("orders") - time.time() * 1000) < 60_000


def test_a_session_is_one_connection(server: Server) -> None:
    with server.session("mail") as session:
        q = Queue(session, "mail")
        first = session.read_on("mail", "CLIENT", "ID")
        job = mint()
        assert enqueue(q, job, b"")
        assert job_state(q, job) is JobState.PENDING
        assert session.run_many(load("enqueue"), [([q.keys.row(job), q.keys.pending], (job, b""))]) == [0]
        assert session.read_on("mail", "CLIENT", "ID") == first
        assert sorted(session.scan()) == sorted([q.keys.pending.encode(), q.keys.row(job).encode()])
        session.write_on("mail", "CLIENT", "KILL", "ID", first, "SKIPME", "yes")
    with pytest.raises(ReconnectedError):
        session.read_on("mail", "PING")
    with server.session("mail") as session:
        first = session.read_on("mail", "CLIENT", "ID")
        server.write_on("mail", "CLIENT", "KILL", "ID", first)
        with pytest.raises(ReconnectedError):
            session.now_ms("mail")
        with pytest.raises(ReconnectedError):
            enqueue(Queue(session, "mail"), mint(), b"")
    assert counts(Queue(server, "mail")).pending == 1


def test_scripts_publish_to_subscribers(server: Server) -> None:
    q = Queue(server, "ä")
    job = mint()
    enqueue(q, job, b"")
    with server.subscribe(q.keys.events) as events:
        update_progress(q, job, b"50")
        message = events.get(10)
        assert message is not None
        assert message.channel == q.keys.events
        assert job.encode() in message.data
        assert events.get(0.01) is None
        assert events.gaps == 0


def test_an_accepted_version_is_fine_and_another_is_refused(server: Server, place: Place) -> None:
    def again() -> None:
        connect(place.url, place.options, base_dir=place.base_dir).close()

    assert version_of(server) is None
    server.write("SET", keyspace.VERSION_KEY, "echomq:3.9.1")
    again()
    server.write("SET", keyspace.VERSION_KEY, "echomq:4.0.0\n")
    try:
        with pytest.raises(IncompatibleError, match=r"echomq:4\.0\.0\\n.*accept_versions"):
            again()
        accepting = replace(place.options, accept_versions=("echomq:3.*", "echomq:4.*"))
        with connect(place.url, accepting, base_dir=place.base_dir) as newer:
            assert version_of(newer) == "echomq:4.0.0\n"
    finally:
        server.write("DEL", keyspace.VERSION_KEY)


def test_every_role_gets_in_with_the_rights_of_its_file(server: Server, place: Place) -> None:
    for name in QUEUES:
        assert enqueue(Queue(server, name), mint(), b"x")
    for admin in place.admins():
        roles.install_on(admin)
    for role in roles.ROLES:
        options = replace(place.options, username=f"emq-ops-{role}", password=roles.PASSWORD)
        with connect(place.url, options, base_dir=place.base_dir) as ours:
            assert ours.queues() == sorted(QUEUES)
            for name in QUEUES:
                assert counts(Queue(ours, name)).pending == 1
                assert ours.run_id(name) == server.run_id(name)
            with ours.session("mail") as session:
                assert session.now_ms("mail") > 0
            ours.subscribe(keyspace.keys_of("mail").events).close()


def test_a_worker_claims_the_version_once(server: Server) -> None:
    assert claim_version(server) == "echomq:3.0.0"
    assert claim_version(server, "echomq:3.7.0") == "echomq:3.0.0"
    server.write("SET", keyspace.VERSION_KEY, "other:1")
    try:
        with pytest.raises(IncompatibleError):
            claim_version(server)
    finally:
        server.write("DEL", keyspace.VERSION_KEY)


def test_a_bound_holds_for_every_call_inside(server: Server) -> None:
    key = keyspace.keys_of("mail").wake
    with deadline.deadline(0.5):
        assert server.read_on("mail", "PING") == b"PONG"
        began = time.monotonic()
        with pytest.raises(DeadlineError):
            server.read("BLPOP", key, 30)
        assert time.monotonic() - began < 5
        with pytest.raises(DeadlineError):
            server.read_on("mail", "PING")
        replies = server.run_many(load("complete"), [(["a{mail}"], ())] * 3)
        assert all(isinstance(reply, DeadlineError) for reply in replies)
    assert server.read_on("mail", "PING") == b"PONG"
    with deadline.deadline(0.5), pytest.raises(OutcomeUnknownError):
        server.write("BLPOP", key, 30)


def test_a_blocking_pop_may_take_longer_than_a_reply(server: Server, place: Place) -> None:
    hasty = replace(place.options, socket_timeout=0.2)
    with connect(place.url, hasty, base_dir=place.base_dir) as other:
        assert other.write("BLPOP", keyspace.keys_of("mail").wake, 0.5) is None


def test_the_server_sees_who_we_are(server: Server, place: Place) -> None:
    with connect(place.url, replace(place.options, verb="sweep"), base_dir=place.base_dir) as other:
        name = other.read_on("mail", "CLIENT", "GETNAME").decode()
    assert name.startswith("emq-ops:sweep:")
    assert name.endswith(f":{os.getpid()}")


def test_after_the_end_nothing_is_sent(server: Server, place: Place) -> None:
    with connect(place.url, place.options, base_dir=place.base_dir) as other:
        assert other.read_on("mail", "PING") == b"PONG"
    with pytest.raises(UnreachableError, match="closed"):
        other.write("SET", keyspace.keys_of("mail").wake, 1)
    with pytest.raises(UnreachableError, match="closed"), other.session("mail"):
        pass
    assert server.read("EXISTS", keyspace.keys_of("mail").wake) == 0


def test_a_whole_life_of_jobs(server: Server) -> None:
    for name in QUEUES:
        q = Queue(server, name)
        jobs = [mint() for _ in range(5)]
        for job in jobs:
            assert enqueue(q, job, job.encode())
            assert not enqueue(q, job, b"again")
        for job in jobs:
            held = claim(q, 60_000)
            assert held is not None
            assert held.job == job
            assert complete(q, held.job, held.token)
        pause_queue(q)
        done = counts(q)
        assert (done.pending, done.active, done.completed) == (0, 0, 5)
