"""A consumer that is asked to stop, or that loses its server: what is in hand is settled, or left whole."""

from __future__ import annotations

import threading

import pytest

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import reads
from emq_ops.worker import Consumer, ConsumerSettings, Job
from emq_ops.worker.events import Settled
from tests.support.consuming import Told, eventually, put_all, records, run
from tests.support.proxy import RespProxy
from tests.support.valkey import Valkey


def test_a_graceful_stop_settles_what_is_in_hand_and_claims_nothing_more(q: Queue) -> None:
    started, go = threading.Semaphore(0), threading.Event()

    def handler(_: Job) -> bytes:
        started.release()
        go.wait(20)
        return b"done"

    put_all(q, *[b""] * 10)
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
    [hangs, fine] = put_all(q, b"hang", b"fine")

    def handler(job: Job) -> None:
        if job.payload == b"hang":
            go.wait(60)

    told = Told()
    consumer = Consumer(q, handler, ConsumerSettings(lease=1_000), concurrency=2, on_event=told)
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
    with RespProxy(valkey.url) as proxy, connect(f"{proxy.url}?patience=0.3") as server:
        consumer = Consumer(Queue(server, q.name), lambda job: job.payload, ConsumerSettings(beat=50), on_event=told)
        consumer.start()
        put_all(q, b"1", b"2")
        eventually(lambda: len(told.of(Settled)) == 2, "two done")
        proxy.down()
        eventually(lambda: len(told.troubles()) >= 3, "trouble is told")
        put_all(q, b"3", b"4")
        proxy.up()
        eventually(lambda: len(told.of(Settled)) == 4, "two more done")
        consumer.stop()
        report = consumer.join(20)
    assert report is not None
    assert report.completed == 4
    assert sorted(fields[b"result"] for fields in records(q)) == [b"1", b"2", b"3", b"4"]


def test_a_consumer_runs_once(q: Queue) -> None:
    consumer = Consumer(q, lambda _: None)
    consumer.run(until_idle=True)
    with pytest.raises(BadInputError, match="has run already"):
        consumer.run()
