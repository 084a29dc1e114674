"""The consumer's loop against a real server: what becomes of jobs, of trouble, and of a request to stop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, IncompatibleError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import control, enqueue, jobs, reads
from emq_ops.worker import Backoff, Cancelled, Consumer, Job
from emq_ops.worker.events import Recovered, Report, Settled, Started
from tests.support.consuming import Told, eventually, lapse, records
from tests.support.handlers import obedient
from tests.support.invariants import violations
from tests.support.proxy import RespProxy, scripted
from tests.support.roles import connect_as, install
from tests.support.valkey import Valkey

NOW = Backoff(base=0, longest=0)


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "orders")


def put(q: Queue, *payloads: bytes, group: str | None = None) -> list[str]:
    found = [ids.mint() for _ in payloads]
    for job, payload in zip(found, payloads, strict=True):
        assert enqueue.enqueue(q, job, payload, group=group)
    return found


def run(q: Queue, handler: Any, **options: Any) -> tuple[Report, Told]:
    told = Told()
    return Consumer(q, handler, on_event=told, **options).run(until_idle=True), told


def test_flat_and_grouped_jobs_complete_with_their_records(q: Queue) -> None:
    group = ids.mint("GRP")
    flat = put(q, *[b"%d" % n for n in range(40)])
    grouped = put(q, *[b"%d" % n for n in range(40)], group=group)
    before = q.server.now_ms(q.name)
    report, told = run(q, lambda job: b"<" + job.payload + b">")
    assert (report.completed, report.abandoned) == (80, ())
    assert told.outcomes() == {job: ["completed"] for job in flat + grouped}
    found = {fields[b"job"].decode(): fields for fields in records(q)}
    assert len(found) == len(records(q)) == 80
    for n, job in enumerate(flat):
        fields = found[job]
        assert list(fields) == [b"id", b"job", b"outcome", b"attempts", b"result", b"started_at", b"settled_at"]
        assert fields[b"outcome"] == b"completed"
        assert fields[b"attempts"] == b"1"
        assert fields[b"result"] == b"<%d>" % n
        assert before <= int(fields[b"started_at"]) <= int(fields[b"settled_at"]) <= q.server.now_ms(q.name)
    assert {found[job][b"group"].decode() for job in grouped} == {group}
    assert reads.counts(q) == reads.Counts(0, 0, 0, 0, 80, 0)
    assert violations(q.server, q.name) == []
    assert q.server.read("KEYS", "*lock") == []


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        (None, None),
        (b"\xff\x00", b"\xff\x00"),
        ("grüße", "grüße".encode()),
        (bytearray(b"x"), b"x"),
        ({"n": [1, None, "é"]}, '{"n": [1, null, "é"]}'.encode()),
        (7, b"7"),
    ],
)
def test_what_a_handler_returns_is_recorded(q: Queue, returned: Any, result: bytes | None) -> None:
    put(q, b"")
    run(q, lambda _: returned)
    [fields] = records(q)
    assert fields.get(b"result") == result


def test_without_recording_no_stream_is_made(q: Queue) -> None:
    put(q, b"x")
    report, _ = run(q, lambda _: b"y", record=False)
    assert report.completed == 1
    assert q.server.read("KEYS", "*") == [q.keys.completed.encode()]


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (ValueError("a\nb \udc80"), b"ValueError: a\nb \\udc80"),
        (KeyError(), b"KeyError"),
        (SystemExit(3), b"SystemExit: 3"),
        (KeyboardInterrupt(), b"KeyboardInterrupt"),
        (asyncio.CancelledError(), b"CancelledError"),
        (Odd("x" * 10_000), b"Odd: " + b"x" * 4_091),
    ],
)
def test_whatever_a_handler_raises_is_its_jobs_error(q: Queue, fault: BaseException, text: bytes) -> None:
    def handler(_: Job) -> None:
        raise fault

    [job] = put(q, b"x")
    report, told = run(q, handler, max_attempts=2, backoff=NOW)
    assert (report.scheduled, report.dead) == (1, 0)  # it waits in the schedule until the next beat
    while not report.dead:
        report, told = run(q, handler, max_attempts=2, backoff=NOW)
    assert told.outcomes() == {job: ["dead"]}
    row = jobs.read_row(q, job)
    assert row is not None
    assert row[b"last_error"] == text
    assert row[b"attempts"] == b"2"
    [fields] = records(q)
    assert (fields[b"outcome"], fields[b"error"], fields[b"attempts"]) == (b"dead", text, b"2")
    assert violations(q.server, q.name) == []


def test_a_result_that_cant_be_recorded_is_an_error(q: Queue) -> None:
    put(q, b"x")
    report, told = run(q, lambda _: {object()}, max_attempts=1)
    assert report.dead == 1
    assert b"the handler returned what can't be recorded" in told.of(Settled)[0].detail  # type: ignore[operator]  # it has one


def test_retries_wait_longer_each_time_and_jobs_come_again_by_themselves(q: Queue) -> None:
    seen: list[tuple[int, float]] = []

    def handler(job: Job) -> bytes:
        seen.append((job.attempts, time.monotonic()))
        if job.attempts < 3:
            raise RuntimeError("again")
        return b"at last"

    put(q, b"x")
    told = Told()
    backoff = Backoff(base=60, factor=3, jitter=0)
    with Consumer(q, handler, max_attempts=5, backoff=backoff, beat=20, on_event=told):
        eventually(lambda: [e for e in told.of(Settled) if e.outcome == "completed"], "completed")
    assert [attempt for attempt, _ in seen] == [1, 2, 3]
    assert seen[1][1] - seen[0][1] >= 0.06
    assert seen[2][1] - seen[1][1] >= 0.18
    assert [fields[b"attempts"] for fields in records(q)] == [b"3"]


def test_an_async_handler_runs_many_jobs_on_one_loop(q: Queue) -> None:
    loops = set()
    together = asyncio.Barrier(4)

    async def handler(job: Job) -> bytes:
        loops.add(id(asyncio.get_running_loop()))
        await together.wait()
        return job.payload

    put(q, b"a", b"b", b"c", b"d")
    report, _ = run(q, handler, concurrency=4)
    assert report.completed == 4
    assert len(loops) == 1
    assert sorted(fields[b"result"] for fields in records(q)) == [b"a", b"b", b"c", b"d"]


def test_a_paused_queue_is_left_alone_and_a_resumed_one_is_not(q: Queue) -> None:
    put(q, b"x")
    control.pause_queue(q)
    report, told = run(q, lambda _: None)
    assert (report.completed, told.of(Started)) == (0, [])
    control.resume_queue(q)
    assert run(q, lambda _: None)[0].completed == 1


def test_the_concurrency_ceiling_holds_and_is_used_to_the_full(q: Queue) -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def handler(_: Job) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1

    q.server.write("HSET", q.keys.meta, "concurrency", "3")
    put(q, *[b""] * 60)
    told = Told()
    consumers = [Consumer(q, handler, concurrency=8, on_event=told) for _ in range(2)]
    for consumer in consumers:
        consumer.start()
    eventually(lambda: len(told.of(Settled)) == 60, "all done")
    for consumer in consumers:
        consumer.stop()
    for consumer in consumers:
        consumer.join(20)
    assert most == 3
    assert told.troubles() == []


def test_lapsed_leases_of_others_are_recovered_by_the_chosen_rule(q: Queue) -> None:
    for recovery, outcome in (("reap", "completed"), ("stalled", "dead"), ("none", None)):
        [job] = put(q, b"x")
        from emq_ops.protocol.transitions.claims import claim

        assert claim(q, 1000) is not None
        lapse(q)
        report, told = run(q, lambda _: b"", recovery=recovery)
        state = reads.job_state(q, job)
        row = jobs.read_row(q, job)
        if outcome == "completed":
            assert (state, told.of(Recovered)) == (reads.JobState.ABSENT, [Recovered("orders", "reap", 1)])
        elif outcome == "dead":
            assert (state, told.of(Recovered)) == (reads.JobState.DEAD, [Recovered("orders", "stalled", 0, (job,))])
            assert row is not None
            assert row[b"last_error"] == b"stalled"
            assert report.completed == 0
        else:
            assert (state, told.of(Recovered)) == (reads.JobState.ACTIVE, [])


@pytest.mark.parametrize("grouped", [False, True])
def test_a_flow_child_is_refused_untouched_and_reported_without_spinning(
    valkey: Valkey, q: Queue, grouped: bool
) -> None:
    group = ids.mint("GRP") if grouped else None
    [child, behind] = put(q, b"child", b"behind", group=group)
    put(q, b"other", group=None if grouped else ids.mint("GRP"))
    q.server.write("HSET", q.keys.row(child), "parent", ids.mint())
    before = jobs.read_row(q, child)
    told = Told()
    with RespProxy(valkey.url) as proxy, connect(proxy.url) as server:
        consumer = Consumer(Queue(server, q.name), lambda _: None, on_event=told, beat=20)
        consumer.start()
        eventually(lambda: told.troubles() and told.of(Settled), "a refusal, and the other kind of job done")
        claims = scripted("claim_lane" if grouped else "claim")
        asked = proxy.count(claims)
        beats = proxy.count(scripted("promote"))
        eventually(lambda: proxy.count(scripted("promote")) > beats + 10, "ten more beats")
        assert proxy.count(claims) <= asked + 1
        assert jobs.read_row(q, child) == before
        assert reads.job_state(q, child) is reads.JobState.PENDING
        assert child in told.troubles()[0][1]
        assert "flow parent" in told.troubles()[0][1]
        # Another worker takes the child; ours goes on with what was behind it, after its pause at the latest.
        q.server.write("HDEL", q.keys.row(child), "parent")
        eventually(lambda: set(told.outcomes()) >= {child, behind}, "both jobs done")
        consumer.stop()
        consumer.join(20)


def test_a_damaged_row_at_the_head_is_reported_and_survived(q: Queue) -> None:
    [broken, behind] = put(q, b"broken", b"behind")
    q.server.write("HDEL", q.keys.row(broken), "attempts")
    told = Told()
    with Consumer(q, lambda _: None, on_event=told, beat=20):
        eventually(lambda: told.troubles(), "a report")
        assert broken in told.troubles()[0][1]
        assert reads.job_state(q, broken) is reads.JobState.PENDING
        q.server.write("HSET", q.keys.row(broken), "attempts", "0")
        eventually(lambda: set(told.outcomes()) == {broken, behind}, "both jobs done")


def test_a_graceful_stop_settles_what_is_in_hand_and_claims_nothing_more(q: Queue) -> None:
    started, go = threading.Semaphore(0), threading.Event()

    def handler(_: Job) -> bytes:
        started.release()
        go.wait(20)
        return b"done"

    put(q, *[b""] * 10)
    told = Told()
    consumer = Consumer(q, handler, concurrency=3, on_event=told)
    consumer.start()
    for _ in range(3):
        assert started.acquire(timeout=20)
    consumer.stop()
    assert consumer.join(0.05) is None
    go.set()
    report = consumer.join(20)
    assert report is not None
    assert (report.completed, report.abandoned) == (3, ())
    assert reads.counts(q).pending == 7
    assert len(records(q)) == 3


def test_a_handler_that_hangs_is_abandoned_at_the_deadline(q: Queue) -> None:
    go = threading.Event()
    [hangs, fine] = put(q, b"hang", b"fine")

    def handler(job: Job) -> None:
        if job.payload == b"hang":
            go.wait(60)

    told = Told()
    consumer = Consumer(q, handler, concurrency=2, lease=1_000, on_event=told)
    consumer.start()
    eventually(lambda: told.of(Settled), "the other one is done")
    consumer.stop(deadline=100)
    report = consumer.join(20)
    assert report is not None
    assert report.abandoned == (hangs,)
    assert told.outcomes() == {fine: ["completed"]}
    # Nobody extends its lease any more: another worker takes it.
    assert eventually(lambda: run(q, lambda _: None)[0].completed, "taken over") == 1
    # The late handler's own end changes nothing: its token is spent.
    go.set()
    eventually(lambda: consumer.in_hand == [], "it ended")
    assert [fields[b"attempts"] for fields in records(q)] == [b"1", b"2"]


def test_a_lost_server_is_survived(valkey: Valkey, q: Queue) -> None:
    told = Told()
    with RespProxy(valkey.url) as proxy, connect(proxy.url) as server:
        consumer = Consumer(Queue(server, q.name), lambda job: job.payload, on_event=told, beat=50)
        consumer.start()
        put(q, b"1", b"2")
        eventually(lambda: len(told.of(Settled)) == 2, "two done")
        proxy.down()
        eventually(lambda: len(told.troubles()) >= 3, "trouble is told")
        put(q, b"3", b"4")
        proxy.up()
        eventually(lambda: len(told.of(Settled)) == 4, "two more done")
        consumer.stop()
        report = consumer.join(20)
    assert report is not None
    assert report.completed == 4
    assert sorted(fields[b"result"] for fields in records(q)) == [b"1", b"2", b"3", b"4"]


def test_a_listener_that_fails_does_not_stop_the_work(q: Queue) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("listener")

    put(q, b"x")
    assert Consumer(q, lambda _: None, on_event=broken).run(until_idle=True).completed == 1


def test_handlers_see_their_job_and_can_log_and_tell_progress(q: Queue) -> None:
    group = ids.mint("GRP")
    [job_id] = put(q, b"\x00\xff", group=group)
    seen: list[Any] = []

    def handler(job: Job) -> Cancelled:
        seen.append((job.id, job.payload, job.attempts, job.group, job.queue, job.token.check()))
        job.progress("50")
        job.log(b"line 1")
        job.log("line 2")
        seen.append(jobs.read_row(q, job.id))
        seen.append(jobs.read_logs(q, job.id))
        return Cancelled("enough")

    report, _ = run(q, handler)
    assert report.cancelled == 1
    assert seen[0] == (job_id, b"\x00\xff", 1, group, "orders", None)
    assert seen[1][b"progress"] == b"50"
    assert seen[2] == [b"line 1", b"line 2"]
    [fields] = records(q)
    assert (fields[b"outcome"], fields[b"result"]) == (b"cancelled", b"cancelled:enough")


def test_the_wire_version_is_claimed_only_when_told(q: Queue) -> None:
    run(q, lambda _: None)
    assert q.server.version() is None
    run(q, lambda _: None, claim_version=True)
    assert q.server.version() == "echomq:3.0.0"
    q.server.write("SET", "{emq}:version", "echomq:4.0.0")
    with pytest.raises(IncompatibleError):
        run(q, lambda _: None, claim_version=True)


def test_a_worker_lives_with_the_rights_of_its_role(valkey: Valkey, q: Queue) -> None:
    install(valkey)
    flat, grouped = put(q, b"ok", b"flaky", b"fail", b"cancel"), put(q, b"ok", b"fail", group=ids.mint("GRP"))
    with connect_as(valkey, "worker") as server:
        told = Told()
        options = {"max_attempts": 2, "backoff": NOW, "beat": 10, "lease": 90, "concurrency": 2}
        with Consumer(Queue(server, q.name), obedient, claim_version=True, on_event=told, **options):  # type: ignore[arg-type]  # of many types
            eventually(lambda: (c := reads.counts(q)).completed + c.failed == len(flat) + len(grouped), "all ended")
            [slow] = put(q, b"sleep 0.3")
            eventually(lambda: q.server.read("EXISTS", q.keys.book(slow, "lock")), "kept")
            eventually(lambda: told.outcomes().get(slow), "done")
    assert told.troubles() == []
    assert len(records(q)) == len(flat) + len(grouped) + 1


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"lease": 0},
        {"lease": -5},
        {"beat": 0},
        {"max_attempts": 0},
        {"recovery": "both"},
        {"serve": "all"},
        {"executor": "lua"},
        {"node": 1024},
        {"stop_deadline": -1},
        {"max_stalled": 0},
        {"stream": "a}b"},
        {"concurrency": 1.5},
    ],
)
def test_bad_options_are_refused_before_anything_runs(q: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        Consumer(q, lambda _: None, **options)


def test_only_lanes_or_only_flat_jobs_are_served_when_told(q: Queue) -> None:
    [flat], [grouped] = put(q, b"f"), put(q, b"g", group=ids.mint("GRP"))
    assert run(q, lambda _: None, serve="lanes")[1].outcomes() == {grouped: ["completed"]}
    assert run(q, lambda _: None, serve="flat")[1].outcomes() == {flat: ["completed"]}


def test_a_parked_consumer_wakes_for_a_grouped_job_before_its_beat(q: Queue) -> None:
    told = Told()
    with Consumer(q, lambda _: None, on_event=told, beat=60_000, serve="lanes") as consumer:
        eventually(lambda: b"blpop" in q.server.read("CLIENT", "LIST"), "parked")
        put(q, b"x", group=ids.mint("GRP"))
        eventually(lambda: told.of(Settled), "woken")
        q.server.write("LPUSH", q.keys.wake, "1")  # so that the stop is seen before the beat
        consumer.stop()
        q.server.write("LPUSH", q.keys.wake, "1")


def test_a_consumer_runs_once(q: Queue) -> None:
    consumer = Consumer(q, lambda _: None)
    consumer.run(until_idle=True)
    with pytest.raises(BadInputError, match="has run already"):
        consumer.run()
