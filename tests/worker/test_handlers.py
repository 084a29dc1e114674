"""What a handler is given, and what becomes of what it answers or raises."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import jobs
from emq_ops.worker import Backoff, Cancelled, Consumer, ConsumerSettings, Job
from emq_ops.worker.events import Settled
from tests.support.consuming import Told, eventually, put_all, records, run
from tests.support.invariants import violations

NOW = Backoff(base=0, longest=0)


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
    put_all(q, b"")
    run(q, lambda _: returned)
    [fields] = records(q)
    assert fields.get(b"result") == result


def test_without_recording_no_stream_is_made(q: Queue) -> None:
    put_all(q, b"x")
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

    [job] = put_all(q, b"x")
    report, told = run(q, handler, max_attempts=2, backoff=NOW, beat=60_000)
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
    put_all(q, b"x")
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

    put_all(q, b"x")
    told = Told()
    backoff = Backoff(base=60, factor=3, jitter=0)
    with Consumer(q, handler, ConsumerSettings(max_attempts=5, backoff=backoff, beat=20), on_event=told):
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

    put_all(q, b"a", b"b", b"c", b"d")
    report, _ = run(q, handler, concurrency=4)
    assert report.completed == 4
    assert len(loops) == 1
    assert sorted(fields[b"result"] for fields in records(q)) == [b"a", b"b", b"c", b"d"]


def test_handlers_see_their_job_and_can_log_and_tell_progress(q: Queue) -> None:
    group = ids.mint("GRP")
    [job_id] = put_all(q, b"\x00\xff", group=group)
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
