"""The native twins against a real module on a real server: what they share with the scripts, and where they differ."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.conformance.keyspace import differences, expected_keyspace, load_keyspace
from emq_ops.protocol.conformance.replay import Vector, read_vectors
from emq_ops.protocol.conformance.values import instant
from emq_ops.protocol.errors import EmqError, IncompatibleError, ServerError, StaleTokenError, StateError
from emq_ops.protocol.native import EXTEND, STALLED_CHECK, Native, Scripts, executor
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import claims, jobs, leases, reads, recover
from emq_ops.protocol.transitions.leases import Extended
from emq_ops.worker import Consumer, ConsumerSettings, Job, LeaseLostError
from emq_ops.worker.events import JobLeaseLost, Recovered
from tests.support.consuming import Told, deadline_of, eventually, lapse, put
from tests.support.invariants import violations
from tests.support.keyspace import dump, recorded
from tests.support.native import with_module
from tests.support.proxy import RespProxy, named
from tests.support.valkey import Valkey

VECTORS = read_vectors(recorded("transitions.json"))


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with with_module(tmp_path_factory.mktemp("native"), appendonly="yes", appendfsync="always") as server:
        yield server


@pytest.fixture
def q(module_server: Valkey) -> Iterator[Queue]:
    with module_server.client() as admin:
        admin.flushall()
    with connect(module_server.url) as server:
        yield Queue(server, "orders")


def stamp(q: Queue, job: str, epoch: str | None = None) -> None:
    q.server.write("HSET", q.keys.row(job), "lease_epoch", epoch or q.server.run_id(q.name))


def epoch_of(q: Queue, job: str) -> str | None:
    row = jobs.read_row(q, job)
    return None if row is None or b"lease_epoch" not in row else row[b"lease_epoch"].decode()


def without_epochs(keyspace: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = copy.deepcopy(keyspace)
    for content in found.values():
        content.get("hash", {}).pop(b"lease_epoch", None)
    return found


def clear(server: Server) -> None:
    for key in set(server.scan()):
        server.write("UNLINK", key)


# What the twins share.


@pytest.mark.parametrize("vector", [v for v in VECTORS if v.op == "extend_lock"], ids=lambda v: v.name)
def test_the_native_extension_agrees_with_every_recorded_one(q: Queue, vector: Vector) -> None:
    q = Queue(q.server, vector.queue)
    load_keyspace(q.server, vector.given, q.server.now_ms(q.name))
    call_ms = q.server.now_ms(q.name)
    job = vector.args["id"]
    got: Any
    try:
        got = int(Native(q.server).extend(q, job, vector.args["token"], vector.args["lease_ms"]))
    except EmqError as refusal:
        got = {"error": refusal.what}
    assert got == vector.reply
    found = dump(q.server)
    assert differences(expected_keyspace(vector.then), without_epochs(found), call_ms) == []
    assert (epoch_of(q, job) is not None) == (got == 1)


def countable(vector: Vector) -> bool:
    """Whether no lapsed lease of the vector is a ghost's or a grouped job's."""
    base = "emq:{" + vector.queue + "}:"
    active = vector.given.get(base + "active", {}).get("zset", {})
    rows = [vector.given.get(f"{base}job:{job}", {}).get("hash") for job in active if instant(active[job], 0) <= 0]
    return all(row is not None and "group" not in row for row in rows)


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v.op == "sweep_stalled" and countable(v)], ids=lambda v: v.name
)
def test_the_native_sweep_counts_leases_of_this_life_as_recorded(q: Queue, vector: Vector) -> None:
    q = Queue(q.server, vector.queue)
    load_keyspace(q.server, vector.given, q.server.now_ms(q.name))
    for job in q.server.read("ZRANGE", q.keys.active, 0, -1):
        stamp(q, job.decode())
    call_ms = q.server.now_ms(q.name)
    swept = Native(q.server).sweep(q, vector.args["max_stalled"], vector.args["limit"])
    assert [swept.recovered, swept.dead] == vector.reply
    assert differences(expected_keyspace(vector.then), without_epochs(dump(q.server)), call_ms) == []


def test_the_vectors_above_are_not_none() -> None:
    assert sum(v.op == "extend_lock" for v in VECTORS) >= 20
    assert sum(v.op == "sweep_stalled" and countable(v) for v in VECTORS) >= 10


# Where they differ.


def test_a_lease_that_is_no_positive_integer_and_keys_that_do_not_fit_are_refused(q: Queue) -> None:
    job = put(q)
    assert claims.claim(q, 1_000) is not None
    before = dump(q.server)
    row, active = q.keys.row(job), q.keys.active
    for lease in ("0", "-1", "x", "1.5", ""):
        with pytest.raises(ServerError) as refused:
            q.server.write(EXTEND, 2, active, row, job, 1, lease)
        assert refused.value.what == "ERR EMQ.EXTEND lease_ms must be a positive integer"
    other = Queue(q.server, "other")
    for keys in ((active, other.keys.row(job)), (q.keys.pending, row), (active, q.keys.row(ids.mint())), (row, active)):
        with pytest.raises(ServerError, match="do not fit the queue's layout"):
            q.server.write(EXTEND, 2, *keys, job, 1, 1_000)
    keys3 = (q.keys.active, q.keys.pending, q.keys.dead)
    for arguments in ((0, 1), (1, 0), ("x", 1), (1, "x"), (-1, 1)):
        with pytest.raises(ServerError, match="must be a positive integer"):
            q.server.write(STALLED_CHECK, 3, *keys3, q.keys.base, *arguments)
    with pytest.raises(ServerError, match="do not fit the queue's layout"):
        q.server.write(STALLED_CHECK, 3, *keys3, other.keys.base, 1, 100)
    assert dump(q.server) == before


def test_a_lease_without_an_epoch_or_of_an_earlier_life_is_recovered_uncounted(q: Queue) -> None:
    native = Native(q.server)
    none, earlier, present = put(q), put(q), put(q)
    assert len(claims.claim_batch(q, 1_000, 3)) == 3
    stamp(q, earlier, "f" * 40)
    stamp(q, present)
    lapse(q)
    swept = native.sweep(q, 1, 100)
    assert (sorted(swept.recovered), swept.dead) == (sorted([none, earlier]), [present])
    for job in (none, earlier):
        assert b"stalled" not in (jobs.read_row(q, job) or {})
    # The script counts each of them.
    assert len(claims.claim_batch(q, 1_000, 3)) == 2
    lapse(q)
    assert sorted(recover.sweep(q, 1, 100).dead) == sorted([none, earlier])


def test_a_ghost_leaves_active_and_is_listed_nowhere(q: Queue) -> None:
    ghost, job = ids.mint(), put(q)
    assert claims.claim(q, 1_000) is not None
    q.server.write("ZADD", q.keys.active, 0, ghost)
    lapse(q)
    swept = Native(q.server).sweep(q, 1, 100)
    assert (swept.recovered, swept.dead) == ([job], [])
    assert q.server.read("EXISTS", q.keys.row(ghost)) == 0
    assert deadline_of(q, ghost) is None
    # The script makes a row of it.
    q.server.write("ZADD", q.keys.active, q.server.now_ms(q.name) - 1_000, ghost)
    assert recover.sweep(q, 1, 100).dead == [ghost]
    assert q.server.read("EXISTS", q.keys.row(ghost)) == 1


def test_a_grouped_lapsed_row_refuses_the_whole_call(q: Queue) -> None:
    flat, grouped = put(q), put(q, group=ids.mint("GRP"))
    assert claims.claim(q, 1_000) is not None
    assert claims.claim_lane(q, 1_000) is not None
    for job in (flat, grouped):
        stamp(q, job)
    lapse(q)
    before = dump(q.server)
    with pytest.raises(StateError, match="EMQSTATE stalled lane not native"):
        Native(q.server).sweep(q, 1, 100)
    assert dump(q.server) == before
    assert sorted(recover.sweep(q, 1, 100).dead) == sorted([flat, grouped])


def test_the_epoch_survives_a_restart_and_no_longer_counts(q: Queue, module_server: Valkey) -> None:
    native = Native(q.server)
    job = put(q)
    assert claims.claim(q, 1_000) is not None
    assert native.extend(q, job, 1, 1_000) is Extended.DONE
    first = q.server.run_id(q.name)
    assert epoch_of(q, job) == first
    module_server.restart()
    assert q.server.run_id(q.name) != first
    lapse(q)
    assert native.sweep(q, 1, 100).recovered == [job]
    assert claims.claim(q, 1_000) is not None
    assert epoch_of(q, job) == first  # a claim by script does not clear it
    assert native.extend(q, job, 2, 1_000) is Extended.DONE
    lapse(q)
    assert native.sweep(q, 1, 100).dead == [job]


# Our client.


def test_the_server_is_asked_once_a_connection(q: Queue, module_server: Valkey) -> None:
    put(q)
    assert claims.claim(q, 1_000) is not None
    with RespProxy(module_server.url) as proxy, connect(proxy.url) as server:
        ours = Queue(server, q.name)
        native = executor(server, "native")
        for _ in range(5):
            native.sweep(ours, 1, 100)
            native.keep(ours, [], 1_000)
        assert proxy.count(named("COMMAND")) == 1
        assert proxy.count(named(STALLED_CHECK)) == 5


def test_a_server_without_the_module_is_refused_and_nothing_is_guessed(server: Server) -> None:
    assert isinstance(executor(server, "script"), Scripts)
    assert Native(server).available() == frozenset()
    with pytest.raises(IncompatibleError, match=EXTEND):
        executor(server, "native")
    with pytest.raises(IncompatibleError, match=EXTEND):
        Consumer(Queue(server, "orders"), lambda _: None, ConsumerSettings(executor="native"))


def test_a_module_that_is_gone_is_told_apart_from_a_refusal(tmp_path: Any) -> None:
    with with_module(tmp_path) as valkey, connect(valkey.url) as server:
        q = Queue(server, "orders")
        one, two, three = (Native(server) for _ in range(3))
        for native in (one, two, three):
            assert native.available() == {EXTEND, STALLED_CHECK}
        job = put(q)
        assert claims.claim(q, 1_000) is not None
        before = dump(server)
        server.write("MODULE", "UNLOAD", "emqtest")
        with pytest.raises(IncompatibleError, match=r"no EMQ\.EXTEND any more"):
            one.extend(q, job, 1, 60_000)
        with pytest.raises(IncompatibleError, match=r"no EMQ\.EXTEND any more"):
            two.keep(q, [(job, 1)], 60_000)
        with pytest.raises(IncompatibleError, match=r"no EMQ\.STALLED\.CHECK any more"):
            three.sweep(q, 1, 100)
        assert dump(server) == before


def test_the_native_keeper_keeps_as_the_script_does_and_stamps(q: Queue) -> None:
    native = Native(q.server)
    held = [put(q) for _ in range(4)]
    assert len(claims.claim_batch(q, 1_000, 4)) == 4
    mine, longer, gone, stale = held
    leases.extend(q, longer, 1, 600_000)
    far = deadline_of(q, longer)
    q.server.write("ZREM", q.keys.active, gone)
    assert native.keep(q, [(mine, 1), (longer, 1), (gone, 1), (stale, 2)], 60_000) == [gone, stale]
    assert (deadline_of(q, mine) or 0) > q.server.now_ms(q.name) + 50_000
    assert deadline_of(q, longer) == far
    assert deadline_of(q, gone) is None
    assert epoch_of(q, mine) == q.server.run_id(q.name)
    assert q.server.read("EXISTS", *[q.keys.book(job, "lock") for job in held]) == 2
    with pytest.raises(StaleTokenError):
        native.extend(q, stale, 2, 1_000)


def test_a_native_worker_keeps_its_leases_and_its_hangs_are_counted(q: Queue) -> None:
    told, hangs = Told(), threading.Event()
    lost: list[LeaseLostError] = []

    def handler(job: Job) -> bytes:
        if job.payload == b"hang":
            hangs.wait(30)
            try:
                job.extend(1_000)
            except LeaseLostError as fault:
                lost.append(fault)
                raise
        while job.payload == b"work" and not hangs.is_set():
            job.extend(1_000)
            job.token.wait(0.02)
        return b"done"

    working = put(q, b"work")
    hung = put(q, b"hang")
    with Consumer(
        q,
        handler,
        ConsumerSettings(lease=1_000, keep=False, recovery="stalled", executor="native", beat=20),
        on_event=told,
    ) as consumer:
        eventually(lambda: reads.job_state(q, hung) is reads.JobState.DEAD, "counted and swept")
        assert epoch_of(q, hung) == epoch_of(q, working) == q.server.run_id(q.name)
        assert Recovered("orders", "stalled", 0, (hung,)) in told.of(Recovered)
        hangs.set()
        eventually(lambda: told.outcomes() == {working: ["completed"]}, "the other is done")
        eventually(lambda: consumer.in_hand == [], "both have ended")
    assert [event.job for event in told.of(JobLeaseLost)] == [hung]
    assert len(lost) == 1
    assert violations(q.server, q.name) == []
