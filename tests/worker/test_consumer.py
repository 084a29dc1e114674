"""The consumer's loop against a real server: which jobs it takes, when, and what it makes of trouble."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, IncompatibleError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import control, jobs, reads
from emq_ops.protocol.wire_fence import version_of
from emq_ops.worker import Backoff, Consumer, ConsumerSettings, Job
from emq_ops.worker.events import Recovered, SetAside, Settled, Started
from tests.support.consuming import Told, eventually, lapse, put_all, records, run
from tests.support.handlers import obedient
from tests.support.invariants import violations
from tests.support.roles import connect_as, install
from tests.support.valkey import Valkey


def test_flat_and_grouped_jobs_complete_with_their_records(q: Queue) -> None:
    group = ids.mint("GRP")
    flat = put_all(q, *[b"%d" % n for n in range(40)])
    grouped = put_all(q, *[b"%d" % n for n in range(40)], group=group)
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


def test_a_paused_queue_is_left_alone_and_a_resumed_one_is_not(q: Queue) -> None:
    put_all(q, b"x")
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
    put_all(q, *[b""] * 60)
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
        [job] = put_all(q, b"x")
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


def test_a_damaged_row_at_the_head_is_reported_and_survived(q: Queue) -> None:
    [broken, behind] = put_all(q, b"broken", b"behind")
    q.server.write("HDEL", q.keys.row(broken), "attempts")
    told = Told()
    with Consumer(q, lambda _: None, ConsumerSettings(beat=20), on_event=told):
        eventually(lambda: told.of(SetAside) and behind in told.outcomes(), "it is named, and what is behind it done")
        assert [event.member for event in told.of(SetAside)] == [broken]
        assert reads.job_state(q, broken) is reads.JobState.PENDING
        q.server.write("HSET", q.keys.row(broken), "attempts", "0")
        eventually(lambda: set(told.outcomes()) == {broken, behind}, "both jobs done")


def test_a_listener_that_fails_does_not_stop_the_work(q: Queue) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("listener")

    put_all(q, b"x")
    assert Consumer(q, lambda _: None, on_event=broken).run(until_idle=True).completed == 1


def test_the_wire_version_is_claimed_only_when_told(q: Queue) -> None:
    run(q, lambda _: None)
    assert version_of(q.server) is None
    run(q, lambda _: None, claim_version=True)
    assert version_of(q.server) == "echomq:3.0.0"
    q.server.write("SET", "{emq}:version", "echomq:4.0.0")
    with pytest.raises(IncompatibleError):
        run(q, lambda _: None, claim_version=True)


def test_a_worker_lives_with_the_rights_of_its_role(valkey: Valkey, q: Queue) -> None:
    install(valkey)
    flat, grouped = put_all(q, b"ok", b"flaky", b"fail", b"cancel"), put_all(q, b"ok", b"fail", group=ids.mint("GRP"))
    with connect_as(valkey, "worker") as server:
        told = Told()
        options = {"max_attempts": 2, "backoff": Backoff(base=0, longest=0), "beat": 10, "lease": 90, "concurrency": 2}
        with Consumer(Queue(server, q.name), obedient, ConsumerSettings(claim_version=True, **options), on_event=told):  # type: ignore[arg-type]  # of many types
            eventually(lambda: (c := reads.counts(q)).completed + c.failed == len(flat) + len(grouped), "all ended")
            [slow] = put_all(q, b"sleep 0.3")
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
        {"claim": ("all",)},
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
        Consumer(q, lambda _: None, ConsumerSettings(**options))


def test_only_lanes_or_only_flat_jobs_are_served_when_told(q: Queue) -> None:
    [flat], [grouped] = put_all(q, b"f"), put_all(q, b"g", group=ids.mint("GRP"))
    assert run(q, lambda _: None, claim=("lanes",))[1].outcomes() == {grouped: ["completed"]}
    assert run(q, lambda _: None, claim=("flat",))[1].outcomes() == {flat: ["completed"]}


def test_a_parked_consumer_wakes_for_a_grouped_job_before_its_beat(q: Queue) -> None:
    told = Told()
    with Consumer(q, lambda _: None, ConsumerSettings(beat=60_000, claim=("lanes",)), on_event=told) as consumer:
        eventually(lambda: b"blpop" in q.server.read("CLIENT", "LIST"), "parked")
        put_all(q, b"x", group=ids.mint("GRP"))
        eventually(lambda: told.of(Settled), "woken")
        q.server.write("LPUSH", q.keys.wake, "1")  # so that the stop is seen before the beat
        consumer.stop()
        q.server.write("LPUSH", q.keys.wake, "1")
