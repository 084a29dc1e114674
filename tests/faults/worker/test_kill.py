"""A worker process is killed before and after every request that it sends; nothing is lost, doubled or half done."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from emq_ops.protocol import ids, scripts
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue, reads
from emq_ops.worker import Backoff, Consumer, ConsumerSettings
from tests.support.consuming import lapse, records
from tests.support.handlers import obedient
from tests.support.invariants import violations
from tests.support.proxy import Proxy, RespProxy, anything
from tests.support.run_worker import start_worker
from tests.support.valkey import Valkey
from tests.support.zygote import Child, Zygote

OBEDIENT = "tests.support.handlers:obedient"
FINAL = {"ok": "completed", "flaky": "completed", "fail": "dead", "cancel": "cancelled"}
OPTIONS = {"max_attempts": 2, "backoff": {"base": 0, "longest": 0}, "concurrency": 2, "lease": 20_000, "beat": 30}


@pytest.fixture
def proxy(valkey: Valkey) -> Iterator[RespProxy]:
    with RespProxy(valkey.url) as opened:
        yield opened


def fill(q: Queue, count: int = 1) -> dict[str, str]:
    """Jobs of every kind, flat and grouped; job to what it is to do."""
    q.server.write("FLUSHALL")
    wanted: dict[str, str] = {}
    for _ in range(count):
        for word in FINAL:
            for group in (None, ids.mint("GRP")):
                job = ids.mint()
                enqueue.enqueue(q, job, word, group=group)
                wanted[job] = word
    for name in scripts.names():
        q.server.write("SCRIPT", "LOAD", scripts.load(name).source)
    return wanted


def assert_whole(q: Queue, wanted: dict[str, str]) -> None:
    """Each job ended with exactly one record, or did not end and has none."""
    assert violations(q.server, q.name) == []
    found: dict[str, list[str]] = {}
    for fields in records(q):
        found.setdefault(fields[b"job"].decode(), []).append(fields[b"outcome"].decode())
    assert set(found) <= set(wanted)
    for job in wanted:
        state = reads.job_state(q, job)
        outcomes = found.get(job, [])
        if state is reads.JobState.ABSENT:
            assert outcomes in (["completed"], ["cancelled"]), (job, outcomes)
        elif state is reads.JobState.DEAD:
            assert outcomes == ["dead"], job
        else:
            assert outcomes == [], (job, state)
    counts = reads.counts(q)
    ended = Counter(outcome for outcomes in found.values() for outcome in outcomes)
    assert counts.completed == ended["completed"] + ended["cancelled"]
    assert counts.failed == counts.dead == ended["dead"]


def finish(q: Queue, wanted: dict[str, str], *, killed: int) -> None:
    """A second worker ends what the killed one left: every job as it was to end, or dead if its attempts were used up
    by the deaths of workers."""
    lapse(q)
    backoff = Backoff(base=0, longest=0)
    while open_jobs(q, wanted):
        Consumer(
            q,
            obedient,
            ConsumerSettings(max_attempts=2 + killed, backoff=backoff, beat=10, cancel=False),
            concurrency=2,
        ).run(until_idle=True)
    assert_whole(q, wanted)
    outcomes = {fields[b"job"].decode(): fields[b"outcome"].decode() for fields in records(q)}
    assert outcomes == {job: FINAL[word] for job, word in wanted.items()}


def open_jobs(q: Queue, wanted: dict[str, str]) -> bool:
    ended = (reads.JobState.ABSENT, reads.JobState.DEAD)
    return any(reads.job_state(q, job) not in ended for job in wanted)


@pytest.mark.parametrize("kind", [pytest.param("kill_before", marks=pytest.mark.soak), "kill_after"])
def test_killed_at_every_request(server: Server, proxy: RespProxy, zygote: Zygote, kind: str) -> None:
    """Each round kills the worker at its next request, until it gets through all jobs unharmed."""
    q = Queue(server, "orders")
    k = 0
    while True:
        k += 1
        wanted = fill(q)
        proxy.disarm()
        proxy.forget()
        fault = proxy.arm(kind, at=k, match=anything, pid=zygote.pid)
        worker = start_worker(zygote, proxy.url, q.name, OBEDIENT, until_idle=False, **OPTIONS)
        until = time.monotonic() + 20
        while worker.poll(0.03) is None and (fault.fired or open_jobs(q, wanted)):
            assert time.monotonic() < until, "neither killed nor done"
        if not fault.fired:
            proxy.disarm()
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
            assert_whole(q, wanted)
            break
        assert worker.wait() == -signal.SIGKILL
        assert_whole(q, wanted)
        finish(q, wanted, killed=1)
    assert k > 30, "the scenario sends more requests than that: the proxy did not see them"


@pytest.mark.soak(minutes=2)
def test_killed_at_random_moments(server: Server, proxy: RespProxy, zygote: Zygote) -> None:
    """Four workers at a time, one of them killed at a random moment and replaced, for 200 deaths."""
    q = Queue(server, "orders")
    chance = random.Random(20_261_129)
    deaths = 0
    while deaths < 200:
        wanted = fill(q, count=40)
        options = {**OPTIONS, "max_attempts": 1_000, "lease": 400}
        alive = [fork_soak(zygote, proxy, q, options) for _ in range(4)]
        while any(
            word != "fail" and reads.job_state(q, job) is not reads.JobState.ABSENT for job, word in wanted.items()
        ):
            time.sleep(chance.uniform(0, 0.12))
            victim = alive.pop(chance.randrange(4))
            victim.kill()
            deaths += 1
            alive.append(fork_soak(zygote, proxy, q, options))
        for worker in alive:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
        assert_whole(q, wanted)


def fork_soak(zygote: Zygote, proxy: Proxy, q: Queue, options: dict[str, object]) -> Child:
    return start_worker(zygote, proxy.url, q.name, OBEDIENT, until_idle=False, **options)
