"""Small cases that real tools got wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.native import CommandExecutor, Native, Scripts
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import claims, enqueue, jobs, reads
from emq_ops.protocol.transitions.recover import Swept
from emq_ops.worker import Consumer, ConsumerSettings
from tests.support.consuming import Told, eventually, lapse, records
from tests.support.invariants import violations
from tests.support.native import with_module
from tests.support.valkey import Valkey


def script(_: Server) -> CommandExecutor:
    return Scripts()


def native(server: Server) -> CommandExecutor:
    return Native(server)


@pytest.mark.parametrize("make", [script, native])
def test_c18_stalls_are_counted_over_a_restart(make: Callable[[Server], CommandExecutor], tmp_path: Path) -> None:
    build = with_module(tmp_path, appendonly="yes", appendfsync="always") if make is native else None
    with build or Valkey(appendonly="yes", appendfsync="always") as valkey, connect(valkey.url) as server:
        q = Queue(server, "mail")
        executor = make(server)
        job = ids.mint()
        enqueue.enqueue(q, job, b"\x00payload")

        def stall(token: int) -> Swept:
            claim = claims.claim(q, 60_000)
            assert claim is not None
            assert (claim.job, claim.token) == (job, token)
            executor.keep(q, [(job, token)], 60_000)  # a native claim's epoch: without it a native sweep counts nothing
            lapse(q)
            return executor.sweep(q, 2, 100)

        assert stall(1) == Swept([job], [])
        assert (jobs.read_row(q, job) or {})[b"stalled"] == b"1"
        valkey.restart()
        assert (jobs.read_row(q, job) or {})[b"stalled"] == b"1"
        assert stall(2) == Swept([], [job])

        row = jobs.read_row(q, job)
        assert row is not None
        row.pop(b"lease_epoch", None)
        assert row == {
            b"state": b"dead",
            b"attempts": b"2",
            b"payload": b"\x00payload",
            b"stalled": b"2",
            b"last_error": b"stalled",
        }
        assert reads.counts(q) == reads.Counts(0, 0, 0, 1, 0, 1)
        server.write("UNLINK", q.keys.book(job, "lock"))
        assert violations(server, q.name) == []

        assert jobs.requeue(q, job) == jobs.Requeued(attempts=2, stalled=2)
        row = jobs.read_row(q, job)
        assert row is not None
        assert b"stalled" not in row
        assert stall(3) == Swept([job], [])


def test_c18_workers_that_sweep_count_over_a_restart(tmp_path: Path) -> None:
    """The same, as workers live it: two of them die with the job in hand."""
    with Valkey(appendonly="yes", appendfsync="always") as valkey, connect(valkey.url) as server:
        q = Queue(server, "mail")
        job = ids.mint()
        enqueue.enqueue(q, job, b"x")
        told = Told()
        for restart in (True, False):
            eventually(lambda: claims.claim(q, 60_000), "claimed by a worker that dies")
            if restart:
                valkey.restart()
            lapse(q)
            Consumer(
                q,
                lambda _: None,
                ConsumerSettings(recovery="stalled", max_stalled=2, cancel=False, claim=("lanes",)),
                on_event=told,
            ).run(until_idle=True)
        assert reads.job_state(q, job) is reads.JobState.DEAD
        assert (jobs.read_row(q, job) or {})[b"stalled"] == b"2"
        assert records(q) == []  # nobody settled it
