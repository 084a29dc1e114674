"""A worker process is stopped (SIGSTOP) beyond its lease, another takes the job, and the first one wakes up."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, jobs, reads, recover, settle
from tests.support.consuming import deadline_of, eventually, records
from tests.support.proxy import RespProxy, scripted
from tests.support.run_worker import events_of, start_worker
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

LEASE = 240
TOO_LATE = ("it could not be extended in time", "it lapsed and was collected, or the job was removed")


class Frozen:
    """A worker that holds one job, stopped until its lease has lapsed."""

    def __init__(self, zygote: Zygote, url: str, q: Queue, payload: bytes, log: Path, **options: object) -> None:
        self.q, self.log = q, log
        self.job = ids.mint()
        assert enqueue.enqueue(q, self.job, payload)
        self.worker = start_worker(
            zygote,
            url,
            q.name,
            "tests.support.handlers:waits",
            log=log,
            until_idle=False,
            recovery="none",
            concurrency=1,  # so that it does not take the job again itself
            lease=LEASE,
            beat=50,
            **options,
        )
        marker = q.keys.book(self.job, "lock")
        eventually(lambda: q.server.read("EXISTS", marker), "its keeper has extended the lease")
        self.worker.signal(signal.SIGSTOP)
        eventually(lambda: (deadline_of(q, self.job) or 0) < q.server.now_ms(q.name), "the lease lapsed")

    def wake(self) -> None:
        self.worker.signal(signal.SIGCONT)

    def go_on(self) -> None:
        """Lets the handler end."""
        self.q.server.write("SET", "go", "1")

    def end(self) -> list[str]:
        """Stops the worker, and answers the kinds of the events it told about the job after its start."""
        self.worker.signal(signal.SIGTERM)
        assert self.worker.wait() == 0
        return [e["kind"] for e in events_of(self.log) if e.get("job") == self.job and e["kind"] != "Started"]


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "orders")


@pytest.mark.parametrize("verb", [b"complete", b"fail", b"extend"])
def test_what_a_late_worker_does_is_refused_as_stale(
    valkey: Valkey, q: Queue, zygote: Zygote, tmp_path: Path, verb: bytes
) -> None:
    frozen = Frozen(zygote, valkey.url, q, verb, tmp_path / "log")
    assert recover.reap(q) == 1
    theirs = claims.claim(q, 60_000)
    assert theirs is not None
    assert (theirs.job, theirs.token) == (frozen.job, 2)
    deadline, row = deadline_of(q, frozen.job), jobs.read_row(q, frozen.job)
    frozen.wake()
    eventually(lambda: [e for e in events_of(frozen.log) if e["kind"] == "JobLeaseLost"], "the late worker knows")
    frozen.go_on()
    eventually(lambda: ended(frozen), "its handler ended")
    assert frozen.end() == ["JobLeaseLost"]
    assert deadline_of(q, frozen.job) == deadline
    assert jobs.read_row(q, frozen.job) == row
    assert records(q) == []
    # The one that holds it settles it, once.
    assert settle.complete(q, frozen.job, 2, record=settle.CompletionRecord("completed", theirs.claimed_ms, 1))
    assert len(records(q)) == 1


def settled(frozen: Frozen, job: str) -> list[str]:
    """The outcomes that the worker told of a job."""
    return [e["outcome"] for e in events_of(frozen.log) if e.get("job") == job and e["kind"] == "Settled"]


def ended(frozen: Frozen) -> bool:
    """Whether the worker has nothing in hand: it claims and completes another job, though it has one thread only."""
    other = ids.mint()
    enqueue.enqueue(frozen.q, other, b"complete")
    frozen.q.server.write("SET", "go", "1")
    found = eventually(
        lambda: [e for e in events_of(frozen.log) if e.get("job") == other and e["kind"] == "Settled"],
        "another job done",
    )
    frozen.q.server.write("UNLINK", frozen.q.keys.stream("completions"))
    return bool(found)


@pytest.mark.parametrize("fate", ["nobody", "reaped", "swept", "claimed"])
def test_the_keeper_of_a_late_worker_revives_nothing_and_writes_nothing(
    valkey: Valkey, q: Queue, zygote: Zygote, tmp_path: Path, fate: str
) -> None:
    with RespProxy(valkey.url) as proxy:
        frozen = Frozen(zygote, proxy.url, q, b"complete", tmp_path / "log")
        if fate == "swept":
            assert recover.sweep(q, 1).dead == [frozen.job]
        elif fate != "nobody":
            assert recover.reap(q) == 1
        if fate == "claimed":
            assert claims.claim(q, 60_000) is not None
        before = (reads.job_state(q, frozen.job), deadline_of(q, frozen.job), jobs.read_row(q, frozen.job))
        proxy.forget()
        frozen.wake()
        [lost] = eventually(
            lambda: [e for e in events_of(frozen.log) if e["kind"] == "JobLeaseLost"], "it gives the lease up"
        )
        beats = proxy.count(scripted("promote"))
        eventually(lambda: proxy.count(scripted("promote")) >= beats + 2 * LEASE // 50, "two leases later")
        assert (reads.job_state(q, frozen.job), deadline_of(q, frozen.job), jobs.read_row(q, frozen.job)) == before
        # At most one extension was under way when it was stopped; nothing was sent late.
        assert proxy.count(scripted("keep")) <= 1
        assert lost["why"] in TOO_LATE
        frozen.go_on()
        if fate == "claimed":
            eventually(lambda: ended(frozen), "its handler ended")
        # Where nobody else has the job, what it did counts; the token says so.
        outcomes = [] if fate == "claimed" else ["completed"]
        eventually(lambda: settled(frozen, frozen.job) == outcomes, "settled, or refused")
        frozen.end()
    assert len(records(q)) == (0 if fate == "claimed" else 1)
