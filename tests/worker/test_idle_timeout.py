"""``until_idle`` with handlers that hang or take long: which are waited for, which are left, and who is told."""

from __future__ import annotations

import threading

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue, reads
from emq_ops.protocol.transitions.claims import Claim
from emq_ops.worker import Consumer, ConsumerSettings, Job
from emq_ops.worker.events import Silent, WorkerEvent, describe
from emq_ops.worker.held_jobs import HeldJob, HeldJobs
from emq_ops.worker.idle_timeout import IdleTimeout
from tests.support.consuming import eventually, records

HOUR_S = 3600.0


def held(held_jobs: HeldJobs, *, silent_s: float) -> HeldJob:
    one = HeldJob(Claim(ids.mint(), b"", 1, None, 0), 0.0)
    one.sign -= silent_s
    held_jobs.add(one)
    return one


def test_silence_is_told_seldomer_and_a_sign_of_life_begins_anew() -> None:
    held_jobs, told = HeldJobs(), list[WorkerEvent]()
    timeout = IdleTimeout("orders", held_jobs, told.append, give_up=None)
    one = held(held_jobs, silent_s=0)
    assert not timeout.over()
    one.sign -= HOUR_S
    assert [timeout.over() for _ in range(3)] == [False] * 3
    [first] = told
    assert isinstance(first, Silent)
    assert (first.jobs, first.left) == ((one.claim.job,), False)
    assert f"waiting for {one.claim.job}: no sign of life for 3600 s" in describe(first)
    one.sign -= 2 * HOUR_S
    timeout.over()
    assert len(told) == 2
    one.sign += 3 * HOUR_S
    timeout.over()
    one.sign -= HOUR_S
    timeout.over()
    assert len(told) == 3


def test_it_is_over_when_no_job_in_hand_shows_life() -> None:
    held_jobs, told = HeldJobs(), list[WorkerEvent]()
    timeout = IdleTimeout("orders", held_jobs, told.append, give_up=60_000)
    assert not timeout.over()
    hung, alive = held(held_jobs, silent_s=HOUR_S), held(held_jobs, silent_s=0)
    assert not timeout.over()
    alive.sign -= HOUR_S
    alive.settling = True  # its handler is done: what is left is ours to do
    assert not timeout.over()
    held_jobs.drop(alive)
    assert told == []
    assert timeout.over()
    [left] = told
    assert isinstance(left, Silent)
    assert (left.jobs, left.left) == ((hung.claim.job,), True)


@pytest.mark.parametrize("sign", ["extend", "progress", "log"])
def test_a_checkpoint_is_a_sign_of_life(server: Server, sign: str) -> None:
    q = Queue(server, "orders")
    assert enqueue.enqueue(q, ids.mint(), b"x")
    signs: list[float] = []

    def handler(job: Job) -> None:
        [one] = consumer._held.all()
        one.sign = -1.0
        {"extend": lambda: job.extend(60_000), "progress": lambda: job.progress("1"), "log": lambda: job.log("l")}[
            sign
        ]()
        signs.append(one.sign)

    consumer = Consumer(q, handler, ConsumerSettings(cancel=False))
    assert consumer.run(until_idle=True).completed == 1
    assert signs[0] > 0


def test_what_is_left_is_abandoned_and_may_still_end_well(server: Server) -> None:
    q = Queue(server, "orders")
    job = ids.mint()
    assert enqueue.enqueue(q, job, b"x")
    go = threading.Event()
    consumer = Consumer(q, lambda _: go.wait(60), ConsumerSettings(cancel=False))
    report = consumer.run(until_idle=True, give_up=50)
    assert (report.abandoned, report.completed) == ((job,), 0)
    assert reads.job_state(q, job) is reads.JobState.ACTIVE
    go.set()
    eventually(lambda: not consumer.in_hand, "settled late, since nobody else had it")
    assert [fields[b"job"].decode() for fields in records(q)] == [job]


@pytest.mark.parametrize("give_up", [0, -1])
def test_giving_up_takes_some_time(server: Server, give_up: int) -> None:
    with pytest.raises(BadInputError, match="give_up"):
        Consumer(Queue(server, "orders"), lambda _: None).run(until_idle=True, give_up=give_up)
