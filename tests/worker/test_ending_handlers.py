"""Handlers that end what they run on: each job is settled as a failure, the rest is worked, no lease is kept alive."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import jobs, reads
from emq_ops.worker import Consumer, ConsumerSettings, Job
from tests.support.consuming import Told, eventually, put_all

SETTINGS = ConsumerSettings(concurrency=2, max_attempts=1, lease=3_000, beat=50, recovery="none", cancel=False)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Numeric(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # on purpose


class Leaving(Exception):
    def __str__(self) -> str:
        sys.exit(1)


class Broken(str):
    def encode(self, *_: Any) -> bytes:
        raise RuntimeError("no bytes")


class Odd(Exception):
    def __str__(self) -> str:
        return Broken("text")


def raising(fault: BaseException) -> Callable[[Job], Any]:
    def handle(job: Job) -> bytes:
        if job.payload == b"bad":
            raise fault
        return b"good"

    return handle


def raising_later(fault: BaseException) -> Callable[[Job], Any]:
    async def handle(job: Job) -> bytes:
        await asyncio.sleep(0)
        if job.payload == b"bad":
            raise fault
        return b"good"

    return handle


def in_a_task(fault: BaseException) -> Callable[[Job], Any]:
    """The loop itself gets it."""

    async def bad() -> None:
        raise fault

    async def handle(job: Job) -> bytes:
        if job.payload == b"bad":
            await asyncio.create_task(bad())
        return b"good"

    return handle


def error_of(q: Queue, job: str) -> bytes:
    row = jobs.read_row(q, job)
    assert row is not None
    assert row[b"state"] == b"dead"
    return row[b"last_error"]


def worked(q: Queue, handler: Callable[[Job], Any]) -> list[str]:
    """Works two bad jobs and then two good ones; returns the bad ones, which are dead."""
    bad = put_all(q, b"bad", b"bad")
    put_all(q, b"good", b"good")
    consumer = Consumer(q, handler, SETTINGS, on_event=Told())
    with consumer:
        eventually(lambda: reads.counts(q).completed == 2 and reads.counts(q).dead == 2, "all is settled")
        eventually(lambda: consumer.in_hand == [], "nothing is in hand")  # a moment after the reply
    return bad


@pytest.mark.parametrize("fault", [Unspeakable(), Numeric(), Leaving()], ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("make", [raising, raising_later], ids=["plain", "async"])
def test_an_exception_that_has_no_text_is_told_by_its_type(
    q: Queue, fault: Exception, make: Callable[[BaseException], Callable[[Job], Any]]
) -> None:
    for job in worked(q, make(fault)):
        assert error_of(q, job) == type(fault).__name__.encode()


def test_a_text_of_another_class_is_a_text(q: Queue) -> None:
    for job in worked(q, raising(Odd())):
        assert error_of(q, job) == b"Odd: text"


FAULTS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("make", [raising, raising_later, in_a_task], ids=["plain", "async", "task"])
def test_what_ends_a_thread_or_a_loop_ends_the_job_alone(
    q: Queue, fault: BaseException, make: Callable[[BaseException], Callable[[Job], Any]]
) -> None:
    for job in worked(q, make(fault)):
        wanted = b"SystemExit: 3" if isinstance(fault, SystemExit) else type(fault).__name__.encode()
        assert error_of(q, job) == wanted


def end_thread() -> None:
    """Ends the calling thread for the operating system; Python does not hear of it."""
    ctypes.CDLL(None).pthread_exit(None)


def test_a_handler_that_ends_its_thread(q: Queue) -> None:
    def handle(job: Job) -> bytes:
        if job.payload == b"bad":
            end_thread()
        return b"good"

    for job in worked(q, handle):
        assert b"ended its thread" in error_of(q, job)


def test_a_handler_that_ends_the_thread_of_the_loop(q: Queue) -> None:
    async def handle(job: Job) -> bytes:
        if job.payload == b"bad":
            end_thread()
        return b"good"

    for job in worked(q, handle):
        assert b"event loop" in error_of(q, job)


def test_a_handler_that_stops_the_loop(q: Queue) -> None:
    async def handle(job: Job) -> bytes:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return job.payload

    put_all(q, b"a", b"b", b"c")
    assert Consumer(q, handle, SETTINGS).run(until_idle=True).completed == 3


@pytest.mark.long
def test_no_lease_is_renewed_for_a_job_that_nobody_works(q: Queue) -> None:
    """The loop of the consumer is held up, so that only the keeper can tell."""
    [job] = put_all(q, b"x")

    def handle(_: Job) -> None:
        end_thread()

    settings = ConsumerSettings(concurrency=1, lease=600, beat=60_000, recovery="none", cancel=False)
    consumer = Consumer(q, handle, settings, on_event=lambda _: None)
    consumer._hands.tend = lambda: None  # type: ignore[method-assign]  # it sees nothing
    with consumer:
        eventually(lambda: consumer.in_hand == [job], "it is claimed")
        time.sleep(0.2)  # the thread is gone by now
        first = q.server.read("ZSCORE", q.keys.active, job)
        eventually(lambda: q.server.now_ms(q.name) > float(first) + 50, "the lease lapsed")
        assert q.server.read("ZSCORE", q.keys.active, job) == first
        consumer.stop(0)


def test_an_error_of_ours_leaves_the_job_to_its_lease(q: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be settled at all is let go of: its lease lapses, and the thread goes on."""
    put_all(q, b"a")
    consumer = Consumer(q, lambda _: b"x", SETTINGS, on_event=Told())
    settle = consumer._settler.settle
    faults = iter([True])

    def faulty(*args: Any) -> bool:
        if next(faults, False):
            raise RuntimeError("ours")
        return settle(*args)

    monkeypatch.setattr(consumer._settler, "settle", faulty)
    with consumer:
        eventually(lambda: reads.counts(q).active == 1 and consumer.in_hand == [], "it is let go of")
        put_all(q, b"b")
        eventually(lambda: reads.counts(q).completed == 1, "the thread goes on")
