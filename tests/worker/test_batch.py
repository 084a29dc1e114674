"""The batch consumer: a verdict a job, each fenced by itself, and only what was settled is told."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import claims, enqueue, jobs, reads, recover
from emq_ops.worker import Backoff, ConsumerSettings, Job
from emq_ops.worker.batch import BatchConsumer, BatchSettings
from emq_ops.worker.events import JobLeaseLost
from emq_ops.worker.verdicts import MISSING, Dead, Delay, Ok, Retry
from tests.support.consuming import Told, eventually, lapse, put_all, records
from tests.support.proxy import RespProxy, scripted
from tests.support.valkey import Valkey

SETTINGS = ConsumerSettings(concurrency=1, recovery="none", promote=False, backoff=Backoff(base=60_000, jitter=0))
OUT_OF_BOUNDS: list[dict[str, int]] = [{"size": 0}, {"size": 10_001}, {"size": 5, "least": 6}, {"wait": -1}]


def work(q: Queue, handler: Any, settings: ConsumerSettings = SETTINGS, **batch: Any) -> Told:
    """Works the queue until it is idle."""
    told = Told()
    BatchConsumer(q, handler, settings, batch=BatchSettings(**batch), on_event=told).run(until_idle=True)
    return told


def row_of(q: Queue, job: str) -> dict[bytes, bytes]:
    return jobs.read_row(q, job) or {}


def test_each_job_has_a_verdict_of_its_own(q: Queue) -> None:
    names = ("ok", "result", "delay", "retry", "dead", "missing", "unknown", "negative")
    made = dict(zip(names, put_all(q, *[name.encode() for name in names]), strict=True))
    waits = {"delay": Delay(90_000), "retry": Retry("no", delay=70_000)}
    rest = {"ok": "ok", "result": Ok({"n": 1}), "dead": Dead("never"), "unknown": object(), "negative": {"delay": -1}}
    before = q.server.now_ms(q.name)
    told = work(q, lambda batch: {made[n]: v for n, v in {**waits, **rest}.items()} | {ids.mint(): "ok"})
    wanted = {key: ["scheduled"] for key in names} | {"ok": ["completed"], "result": ["completed"]}
    assert told.outcomes() == {made[n]: v for n, v in (wanted | {"delay": ["delayed"], "dead": ["dead"]}).items()}
    errors = {name: row_of(q, made[name]).get(b"last_error") for name in names}
    assert errors.pop("unknown", b"")[:17] == b"unknown verdict: "  # type: ignore[index]  # it has one
    assert errors == {
        **dict.fromkeys(("ok", "result", "delay")),
        "retry": b"no",
        "dead": b"never",
        "missing": MISSING,
        "negative": b"unknown verdict: {'delay': -1}",
    }
    due = {name: int(q.server.read("ZSCORE", q.keys.schedule, made[name])) - before for name in ("delay", "retry")}
    assert 0 <= due["delay"] - 90_000 < 60_000 <= 70_000 <= due["retry"]
    assert {r[b"outcome"]: r.get(b"result") for r in records(q)} == {b"completed": b'{"n": 1}', b"dead": None}
    assert row_of(q, made["delay"])[b"attempts"] == b"1"


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (lambda batch: [][0], b"IndexError: list index out of range"),
        (lambda batch: ["ok"], b"the handler returned no mapping of verdicts, but ['ok']"),
        (lambda batch: None, b"the handler returned no mapping of verdicts, but None"),
    ],
)
def test_a_handler_that_says_nothing_fails_them_all(q: Queue, handler: Any, error: bytes) -> None:
    made = put_all(q, b"a", b"b", b"c")
    assert work(q, handler).outcomes() == {key: ["scheduled"] for key in made}
    assert {row_of(q, job)[b"last_error"] for job in made} == {error}


async def _later(batch: Sequence[Job]) -> dict[str, str]:
    return {job.id: "ok" for job in batch}


def test_batches_of_lanes_and_flat_jobs_as_large_as_told(q: Queue) -> None:
    lane = ids.mint("GRP")
    for n in range(5):
        enqueue.enqueue(q, ids.mint(), b"x", group=lane if n % 2 else None)
    sizes = []

    def handle(batch: Sequence[Job]) -> Any:
        sizes.append(len(batch))
        return _later(batch)

    work(q, handle, size=2)
    assert sorted(sizes) == [1, 2, 2]
    assert reads.counts(q).completed == 5


def test_few_are_waited_with_for_so_long_and_no_longer(q: Queue) -> None:
    put_all(q, b"a", b"b")
    seen: list[tuple[int, float]] = []

    def handle(batch: Sequence[Job]) -> dict[str, str]:
        seen.append((len(batch), time.monotonic() - began))
        return {job.id: "ok" for job in batch}

    began = time.monotonic()
    with BatchConsumer(q, handle, SETTINGS, batch=BatchSettings(size=10, least=3, wait=400)):
        eventually(lambda: seen, "after the wait")
    [(count, after)] = seen
    assert count == 2
    assert after >= 0.4
    put_all(q, b"a", b"b", b"c")
    work(q, handle, size=10, least=3, wait=600_000)
    assert [count for count, _ in seen] == [2, 3]


def test_a_stop_works_what_was_gathered(q: Queue) -> None:
    [job] = put_all(q, b"a")
    consumer = BatchConsumer(q, _later, SETTINGS, batch=BatchSettings(size=10, least=3, wait=600_000))
    with consumer:
        eventually(lambda: consumer.in_hand == [job], "gathered")
    assert reads.job_state(q, job) is reads.JobState.ABSENT


def test_a_job_that_is_somebody_elses_by_now_is_neither_settled_nor_told(q: Queue) -> None:
    lost, kept = put_all(q, b"lost", b"kept")
    told = Told()

    def handle(batch: Sequence[Job]) -> dict[str, str]:
        if batch[0].id == lost:
            lapse(q)
            recover.reap(q)
            claimed = claims.claim(q, 60_000)
            assert claimed is not None
            assert (claimed.job, claimed.token) == (lost, 2)
            # The other one's lease is gone as well, but nobody has claimed it: its token is still current.
        return {job.id: "ok" for job in batch}

    with q.server.subscribe(q.keys.events) as channel:
        consumer = BatchConsumer(q, handle, SETTINGS, batch=BatchSettings(size=2, least=2), on_event=told)
        with consumer:
            eventually(lambda: told.of(JobLeaseLost) and told.outcomes(), "settled and lost")
        message = channel.get(10)
        assert message is not None
        assert json.loads(message.data) == {"event": "completed", "job": kept}
        assert channel.get(0.2) is None
    assert told.outcomes() == {kept: ["completed"]}
    assert row_of(q, lost)[b"attempts"] == b"2"
    assert reads.job_state(q, lost) is reads.JobState.ACTIVE


@pytest.mark.parametrize("kind", ["cut_before", "cut_after", "half_reply"])
def test_a_lost_reply_settles_each_job_once(valkey: Valkey, q: Queue, kind: str) -> None:
    made = put_all(q, *[b"x"] * 20)
    with RespProxy(valkey.url) as proxy, connect(f"{proxy.url}?socket_timeout=0.2") as ours:
        fault = proxy.arm(kind, match=scripted("complete_many"))
        told = work(Queue(ours, q.name), _later)
    assert fault.fired
    assert told.outcomes() == {key: ["completed"] for key in made}
    assert len(records(q)) == 20
    assert reads.counts(q).completed == 20


@pytest.mark.parametrize("bad", OUT_OF_BOUNDS)
def test_what_is_out_of_bounds_is_named(bad: dict[str, int]) -> None:
    with pytest.raises(BadInputError, match=next(reversed(bad))):
        BatchSettings(**bad)
