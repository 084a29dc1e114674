"""``audit dead`` of 100,000 dead jobs against the bare reads of the same facts, in one run; and its memory.

Bare: pages of 1,000 ids and pipelined HMGETs of what the audit shows. The audit groups by normalised error text, with a
ledger beside it that knows every death. Rounds alternate; medians. Wanted: a ratio of at most 5. The doctor over the
same keyspace is timed beside it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import tracemalloc
from typing import Any

import redis

from emq_ops.audit.dead import audit_dead
from emq_ops.audit.doctor import examine
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.protocol.ids import encode62
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import connect
from tests.passes.acts.seeding import see
from tests.support.sizes import sized
from tests.support.valkey import Valkey

PAGE = 1000
KEYS = keys_of("orders")
FIELDS = ("attempts", "stalled", "last_error", "group", "state")


def seed(client: redis.Redis, count: int) -> None:
    """Dead jobs with 200-byte payloads and error texts that are all different."""
    for first in range(0, count, PAGE):
        pipe = client.pipeline(transaction=False)
        for n in range(first, min(first + PAGE, count)):
            job = f"JOB{encode62(n << 12)}"
            error = f"timeout after {n}ms calling https://api.example.test/v{n % 7}/orders/{n}"
            row: dict[Any, Any] = {"state": "dead", "attempts": "3", "payload": "x" * 200, "last_error": error}
            pipe.hset(KEYS.row(job), mapping=row)
            pipe.zadd(KEYS.dead, {job: 0})
        pipe.execute()


def bare(client: redis.Redis, count: int) -> float:
    started = time.perf_counter()
    seen = 0
    while seen < count:
        ids: Any = client.zrange(KEYS.dead, seen, seen + PAGE - 1)
        pipe = client.pipeline(transaction=False)
        for job in ids:
            pipe.hmget(KEYS.row(job.decode()), *FIELDS)
        seen += len(pipe.execute())
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = sized(parser, jobs=2_000, rounds=1)
    with (
        Valkey() as valkey,
        connect(valkey.url) as server,
        tempfile.TemporaryDirectory() as folder,
        open_ledger(f"sqlite:///{folder}/state.db") as ledger,
        valkey.client() as client,
    ):
        seed(client, given.jobs)
        see(server, ledger, "orders")
        reads, audits = [], []
        for _ in range(given.rounds):
            reads.append(bare(client, given.jobs))
            started = time.perf_counter()
            audit = audit_dead(server, ["orders"], DeadSelection(), ledger)
            audits.append(time.perf_counter() - started)
            assert (audit.dead, audit.unrecorded) == (given.jobs, 0)
        started = time.perf_counter()
        assert examine(server, ["orders"], settle=0).healthy
        doctor = time.perf_counter() - started
        tracemalloc.start()
        audit_dead(server, ["orders"], DeadSelection(), ledger)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    read, took = statistics.median(reads), statistics.median(audits)
    print(f"bare reads      {given.jobs / read:10,.0f} jobs/s")
    print(f"audit dead      {given.jobs / took:10,.0f} jobs/s, {took / read:.2f} times the bare reads (at most 5)")
    print(f"audit memory    {peak / 2**20:10.1f} MiB at its peak")
    print(f"doctor          {given.jobs / doctor:10,.0f} jobs/s")


if __name__ == "__main__":
    main()
