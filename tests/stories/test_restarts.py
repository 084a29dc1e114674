"""Stories (a) to (c) with fixed numbers, on real processes, told back by the audits. (d) to (f) are in
``test_passes``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions.reads import counts
from tests.audit.working import failed, put
from tests.stories.telling import numbers, ops
from tests.support.run_worker import start_worker
from tests.support.valkey import Valkey
from tests.support.waiting import first_true
from tests.support.zygote import Child, Zygote

LEASE_MS = 1_500
WAITS = "tests.support.handlers:waits"


class Stage:
    """A durable server, a state, a queue, and the tool beside them."""

    def __init__(self, folder: Path, zygote: Zygote) -> None:
        self.valkey = Valkey(appendonly="yes", appendfsync="always").start()
        self.zygote = zygote
        self.where = ("--url", self.valkey.url, "--state", f"sqlite:///{folder}/state.db")
        self.workers: list[Child] = []

    def ops(self, *argv: str) -> Any:
        """The JSON that a command says; it must succeed."""
        return ops(*argv, *self.where)

    def counts(self) -> Any:
        with connect(self.valkey.url) as server:
            return counts(Queue(server, "orders"))

    def until(self, true: Callable[[], bool]) -> None:
        first_true(true, 30, lambda: "never", pause=0.02)

    def in_flight(self, jobs: int, **options: Any) -> list[str]:
        """Jobs that a worker process holds, waiting inside its handler."""
        with connect(self.valkey.url) as server:
            made = put(Queue(server, "orders"), jobs)
        self.ops("sweep", "orders")  # the first contact: whatever happens later is known to have begun after it
        self.workers.append(self.work(until_idle=False, concurrency=jobs, lease=LEASE_MS, **options))
        self.until(lambda: self.counts().active == jobs)
        return sorted(made)

    def work(self, *, until_idle: bool = True, **options: Any) -> Child:
        options |= {"until_idle": until_idle, "recovery": "none"}
        return start_worker(self.zygote, self.valkey.url, "orders", WAITS, **options)

    def kill_workers(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.workers.clear()

    def close(self) -> None:
        self.kill_workers()
        self.valkey.close()


@pytest.fixture
def stage(tmp_path: Path, zygote: Zygote) -> Iterator[Stage]:
    opened = Stage(tmp_path, zygote)
    yield opened
    opened.close()


def swept_until(stage: Stage, what: str, total: int, *flags: str) -> list[str]:
    """Sweeps until `total` leases were settled as `what`; answers the runs that did it."""
    runs, done = [], 0
    deadline = time.monotonic() + 30
    while done < total:
        assert time.monotonic() < deadline
        report = stage.ops("sweep", "orders", *flags)
        if report[what]:
            done += report[what]
            runs.append(report["run"])
    return runs


def test_a_forty_in_flight_and_nobody_comes_back_exempt(stage: Stage) -> None:
    mine = stage.in_flight(40)
    stage.kill_workers()
    stage.valkey.restart()
    swept_until(stage, "exempted", 40)
    [told] = stage.ops("audit", "restarts")["interruptions"]
    assert numbers(told) == ("restart", 40, 40, 40, 0, 0)
    assert told["jobs"] == {"exempted": mine}
    assert stage.ops("audit", "dead", "orders")["dead"] == 0
    assert stage.ops("audit", "what-if", "--max-stalled", "1")["would_die"] == 0


def test_a_counted_forty_die_are_suspected_requeued_and_complete(stage: Stage) -> None:
    mine = stage.in_flight(40)
    with connect(stage.valkey.url) as server:
        other = failed(Queue(server, "orders"), b"HTTP 503 Service Unavailable")
    stage.kill_workers()
    stage.valkey.restart()
    [run] = swept_until(stage, "dead", 40, "--restart", "count", "--max-stalled", "1")
    [told] = stage.ops("audit", "restarts")["interruptions"]
    assert numbers(told) == ("restart", 40, 0, 0, 40, 0)
    audit = stage.ops("audit", "dead", "orders")
    assert {(g["cause"], g["error"], g["jobs"]) for g in audit["groups"]} == {
        ("stalled", "stalled", 40),
        ("error", "HTTP 503 Service Unavailable", 1),
    }
    assert sorted(one["job"] for one in audit["suspects"]) == mine
    [burst] = audit["bursts"]
    assert (burst["run"], burst["leases"], burst["across"]) == (run, 40, 40)
    assert stage.ops("audit", "what-if", "--max-stalled", "2")["would_die"] == 0
    [act] = stage.ops("audit", "dead", "orders", "--suspects", "--requeue", "--yes", "--why", "the restart")["acts"]
    assert (act["done"], act["last_attempt"]) == (40, 0)
    with connect(stage.valkey.url) as server:
        server.write("SET", "go", "1")
    assert stage.work(concurrency=8).wait() == 0
    assert (stage.counts().completed, stage.counts().dead) == (40, 1)
    life = stage.ops("audit", "job", mine[0])
    assert [event["what"] for event in life["events"]][-2:] == ["revived", "requeue"]
    assert life["live"] == []
    [left] = stage.ops("audit", "dead", "orders", "--list")
    assert (left["job"], left["cause"]) == (other, "error")


def test_b_workers_that_survive_are_left_alone(stage: Stage) -> None:
    mine = stage.in_flight(6)
    stage.valkey.restart()
    deadline = time.monotonic() + 2 * LEASE_MS / 1000
    while time.monotonic() < deadline:  # longer than their leases: keepers extend them
        report = stage.ops("sweep", "orders")
        assert (report["recovered"], report["dead"]) == (0, 0)
        time.sleep(0.1)
    [told] = stage.ops("audit", "restarts")["interruptions"]
    assert numbers(told) == ("restart", 6, 0, 0, 0, 0)
    assert told["others"] == 6
    assert told["jobs"] == {"others": mine}


def test_c_a_worker_host_dies_one_burst_named(stage: Stage) -> None:
    mine = stage.in_flight(15)
    stage.kill_workers()
    [run] = swept_until(stage, "dead", 15)
    audit = stage.ops("audit", "dead", "orders")
    [burst] = audit["bursts"]
    assert (burst["run"], burst["leases"], burst["died"], burst["across"]) == (run, 15, 15, 0)
    assert sorted(burst["jobs"]) == mine
    assert audit["suspects"] == []
    assert stage.ops("audit", "restarts")["interruptions"] == []
    assert stage.ops("audit", "dead", "orders", "--pass", run)["dead"] == 15
