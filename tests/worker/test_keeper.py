"""The lease keeper and checkpoints: what keeps a lease, what gives it up, and that nothing is ever put back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import HeldError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import claims, enqueue, jobs, leases, reads, recover
from emq_ops.worker import Consumer, ConsumerSettings, Job, LeaseLostError, keeper
from emq_ops.worker.events import JobLeaseLost
from tests.support.consuming import Told, deadline_of, eventually, lapse, put, records
from tests.support.proxy import RespProxy, scripted
from tests.support.valkey import Valkey

LONG = 20_000


@pytest.fixture
def busy_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper that comes every 50 ms to leases of LONG ms: however slow the machine is, none lapses by itself."""
    monkeypatch.setattr(keeper, "BEATS_A_LEASE", LONG // 50)


def collect(q: Queue, by: Callable[[], bool], what: str) -> None:
    """Lets every lease lapse, and has `by` collect one, before the keeper has extended it again."""

    def once() -> bool:
        lapse(q)
        return by()

    eventually(once, what)


class Waiting:
    """A handler that holds its jobs until it is let go; then it does `last` with each."""

    def __init__(self, last: Callable[[Job], Any] = lambda job: job.payload) -> None:
        self.jobs: list[Job] = []
        self.go = threading.Event()
        self._last = last

    def __call__(self, job: Job) -> Any:
        self.jobs.append(job)
        assert self.go.wait(30)
        return self._last(job)


@pytest.mark.usefixtures("busy_keeper")
def test_a_job_in_hand_is_kept_and_marked_as_held(q: Queue) -> None:
    told, handler = Told(), Waiting()
    held = [put(q), put(q, group=ids.mint("GRP"))]
    with Consumer(q, handler, ConsumerSettings(lease=LONG, beat=20), on_event=told):
        eventually(lambda: len(handler.jobs) == 2, "in hand")
        for _ in range(4):  # again and again
            first = {job: deadline_of(q, job) or 0 for job in held}

            def all_extended(first: dict[str, int] = first) -> bool:
                assert recover.sweep(q).dead == []
                assert {reads.job_state(q, job) for job in held} == {reads.JobState.ACTIVE}
                return all((deadline_of(q, job) or 0) > before for job, before in first.items())

            eventually(all_extended, "every lease goes on")
        assert 0 < q.server.read("PTTL", q.keys.book(held[0], "lock")) <= 2 * LONG
        with pytest.raises(HeldError):
            jobs.remove(q, held[0])
        handler.go.set()
        eventually(lambda: len(told.outcomes()) == 2, "done")
    assert told.of(JobLeaseLost) == []
    assert q.server.read("KEYS", "*lock") == []


@pytest.mark.parametrize("how", ["reaped", "swept dead", "claimed by another", "removed"])
def test_a_lease_that_is_gone_cancels_the_token_and_is_never_put_back(q: Queue, how: str) -> None:
    told, handler = Told(), Waiting()
    job = put(q)
    with Consumer(q, handler, ConsumerSettings(lease=300, recovery="none", beat=60_000), on_event=told):
        eventually(lambda: handler.jobs, "in hand")
        if how == "swept dead":
            collect(q, lambda: recover.sweep(q).dead == [job], how)
        elif how == "removed":
            q.server.write("UNLINK", q.keys.row(job), q.keys.active)
        else:
            collect(q, lambda: recover.reap(q) == 1, how)
        if how == "claimed by another":
            assert claims.claim(q, 60_000) is not None
        theirs = deadline_of(q, job)
        assert handler.jobs[0].token.wait(20) == "lease lost"
        assert handler.jobs[0].token.lost
        assert [event.job for event in told.of(JobLeaseLost)] == [job]
        assert deadline_of(q, job) == theirs
        handler.go.set()
    # What it did in the meantime counts where nobody else has the job; else it is refused as stale.
    if how in ("reaped", "swept dead"):
        assert told.outcomes() == {job: ["completed"]}
        assert len(records(q)) == 1
    else:
        assert told.outcomes() == {}
        assert records(q) == []
    assert len(told.of(JobLeaseLost)) == 1


def test_a_handler_that_stops_since_its_lease_is_lost_settles_nothing(q: Queue) -> None:
    told, handler = Told(), Waiting(lambda job: job.token.raise_if_cancelled())
    job = put(q)
    with Consumer(q, handler, ConsumerSettings(lease=300, recovery="none", beat=60_000), on_event=told) as consumer:
        eventually(lambda: handler.jobs, "in hand")
        collect(q, lambda: recover.reap(q) == 1, "reaped")
        assert handler.jobs[0].token.wait(20)
        consumer.stop()  # so that it does not claim the job again
        handler.go.set()
    assert reads.job_state(q, job) is reads.JobState.PENDING
    assert told.outcomes() == {}
    assert records(q) == []


def test_a_lease_that_could_not_be_extended_in_time_is_given_up_and_not_extended_late(valkey: Valkey, q: Queue) -> None:
    told, handler = Told(), Waiting()
    job = put(q)
    with RespProxy(valkey.url) as proxy, connect(proxy.url) as server:
        consumer = Consumer(
            Queue(server, q.name), handler, ConsumerSettings(lease=300, recovery="none", cancel=False), on_event=told
        )
        consumer.start()
        eventually(lambda: handler.jobs, "in hand")
        proxy.down()
        assert handler.jobs[0].token.wait(20) == "lease lost"
        at = deadline_of(q, job)
        assert at is not None
        eventually(lambda: at <= q.server.now_ms(q.name), "it lapsed: our own clock gives it up no later")
        proxy.up()
        proxy.forget()
        eventually(lambda: proxy.count(scripted("promote")) >= 2, "it works again, for more than a lease")
        assert deadline_of(q, job) == at
        assert proxy.count(scripted("keep")) == 0
        assert [event.why for event in told.of(JobLeaseLost)] == ["it could not be extended in time"]
        handler.go.set()
        consumer.stop()
        consumer.join(20)


@pytest.mark.usefixtures("busy_keeper")
def test_a_checkpoint_outlasts_the_keeper_and_says_when_the_job_is_not_ours(q: Queue) -> None:
    told, handler = Told(), Waiting()
    job = put(q)
    with Consumer(q, handler, ConsumerSettings(lease=LONG, recovery="none", beat=60_000), on_event=told):
        [claim] = eventually(lambda: handler.jobs, "in hand")
        claim.extend(60_000)
        far = deadline_of(q, job)
        assert far is not None
        assert far > q.server.now_ms(q.name) + 50_000
        marker = q.keys.book(job, "lock")
        eventually(lambda: q.server.read("PTTL", marker) > 0, "the keeper has been there")
        q.server.write("DEL", marker)
        eventually(lambda: q.server.read("PTTL", marker) > 0, "and again")
        assert deadline_of(q, job) == far
        collect(q, lambda: recover.reap(q) == 1, "reaped")
        with pytest.raises(LeaseLostError, match="its lease was collected"):
            claim.extend(60_000)
        assert claim.token.check() == "lease lost"
        assert claims.claim(q, 60_000) is not None
        with pytest.raises(LeaseLostError, match="token mismatch"):
            claim.extend(60_000)
        q.server.write("UNLINK", q.keys.row(job))
        with pytest.raises(LeaseLostError, match="its row is gone"):
            claim.extend(60_000)
        handler.go.set()
    assert len(told.of(JobLeaseLost)) == 1
    assert told.outcomes() == {}


def test_a_handler_that_lets_a_lost_lease_pass_settles_nothing(q: Queue) -> None:
    told, handler = Told(), Waiting(lambda job: job.extend(60_000))
    job = put(q)
    with Consumer(q, handler, ConsumerSettings(lease=60_000, recovery="none", beat=60_000), on_event=told) as consumer:
        eventually(lambda: handler.jobs, "in hand")
        collect(q, lambda: recover.reap(q) == 1, "reaped")
        consumer.stop()
        handler.go.set()
    row = jobs.read_row(q, job)
    assert row is not None
    assert (row[b"state"], b"last_error" in row) == (b"pending", False)
    assert told.outcomes() == {}


@pytest.mark.usefixtures("busy_keeper")
def test_without_a_keeper_just_checkpoints_count_so_that_a_hang_is_found(q: Queue) -> None:
    told, hangs, alive = Told(), threading.Event(), threading.Event()

    def handler(job: Job) -> bytes:
        if job.payload == b"hang":
            job.extend(200)
            hangs.wait(30)
            return b"late"
        while not alive.is_set():
            job.extend(LONG)
            job.token.wait(0.02)
        return b"done"

    hung, working = put(q, b"hang"), put(q, b"work")
    with Consumer(q, handler, ConsumerSettings(lease=LONG, keep=False, recovery="stalled", beat=20), on_event=told):
        eventually(lambda: reads.job_state(q, hung) is reads.JobState.DEAD, "the hang is swept")
        assert reads.job_state(q, working) is reads.JobState.ACTIVE
        assert "it could not be extended in time" in eventually(lambda: [e.why for e in told.of(JobLeaseLost)], "told")
        alive.set()
        eventually(lambda: told.outcomes() == {working: ["completed"]}, "the other is done")
        hangs.set()


def test_keep_never_revives_and_extends_only_what_is_ours(q: Queue) -> None:
    group = ids.mint("GRP")
    held = []
    for n in range(5):
        put(q, b"x", group if n % 2 else None)
    for claim in claims.claim_batch(q, 1_000, 5) + claims.claim_lane_batch(q, 1_000, 5):
        held.append((claim.job, claim.token))
    lapse(q)
    jobs.remove(q, held[0][0])
    assert recover.reap(q, 1) == 1  # the lowest of the others is pending now
    active = {i.decode() for i in q.server.read("ZRANGE", q.keys.active, 0, -1)}
    [reaped] = {job for job, _ in held[1:]} - active
    stale = next(job for job, _ in held if job in active)
    asked = [(job, token + (job == stale)) for job, token in held]
    lost = leases.keep(q, asked, 60_000)
    assert lost == [job for job, _ in held if job in (held[0][0], reaped, stale)]
    now = q.server.now_ms(q.name)
    assert {i.decode() for i in q.server.read("ZRANGE", q.keys.active, 0, -1)} == active
    for job in active:
        assert ((deadline_of(q, job) or 0) > now) == (job != stale)
    assert q.server.read("EXISTS", *[q.keys.book(job, "lock") for job in lost]) == 0
    assert leases.keep(q, [], 1_000) == []


def test_keep_takes_thousands_of_leases(q: Queue) -> None:
    enqueue.enqueue_many(q, [enqueue.NewJob(ids.mint(), b"x") for _ in range(2_500)])
    held = [(c.job, c.token) for c in claims.claim_batch(q, 1_000, 5_000)]
    assert len(held) == 2_500
    lapse(q)
    assert leases.keep(q, held, 60_000) == []
    assert recover.reap(q) == 0
