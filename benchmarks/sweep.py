"""The stalled sweep against the same commands sent as plain pipelines, in one run.

100,000 lapsed leases, half of them grouped over 50 lanes, on a unix socket. Rounds alternate between the sweep (slices
of 100) and the baseline (HINCRBY, HSET, ZREM and ZADD of each job, pipelines of depth 1,000); medians. Slice times are
the server's own (slow log, which is on for the sweep alone).
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import redis

from emq_ops.protocol.ids import encode62
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions.recover import sweep
from tests.support.sizes import sized
from tests.support.valkey import Valkey

LANES = [f"GRP{encode62(n)}" for n in range(50)]
SLICE = 100
DEPTH = 1000


def job_ids(count: int) -> list[str]:
    return [f"JOB{encode62(n << 12)}" for n in range(count)]


def group_of(place: int) -> str | None:
    return LANES[place // 2 % len(LANES)] if place % 2 else None


def seed(client: redis.Redis, q: Queue, ids: list[str]) -> None:
    """Every job active with a lease that lapsed; `gactive` right."""
    client.flushall()
    base = q.server.now_ms(q.name) - 10_000_000
    pipe = client.pipeline(transaction=False)
    for place, job in enumerate(ids):
        group = group_of(place)
        row: dict[Any, Any] = {"state": "active", "attempts": "1", "payload": "x" * 50} | (
            {"group": group} if group else {}
        )
        pipe.hset(q.keys.row(job), mapping=row)
        pipe.zadd(q.keys.active, {job: base + place})
        if group:
            pipe.hincrby(q.keys.gactive, group, 1)
        if place % DEPTH == DEPTH - 1:
            pipe.execute()
    pipe.execute()
    client.slowlog_reset()


def run_sweep(q: Queue, count: int) -> float:
    started = time.perf_counter()
    done = 0
    while True:
        swept = sweep(q, max_stalled=3, limit=SLICE)
        found = len(swept.recovered) + len(swept.dead)
        if not found:
            break
        done += found
    taken = time.perf_counter() - started
    if done != count:
        raise SystemExit(f"swept {done} of {count}")
    return taken


def run_baseline(client: redis.Redis, q: Queue, ids: list[str]) -> float:
    k = q.keys
    started = time.perf_counter()
    pipe = client.pipeline(transaction=False)
    sent = 0
    for place, job in enumerate(ids):
        group = group_of(place)
        row = k.base + "job:" + job
        pipe.execute_command("HINCRBY", row, "stalled", 1)
        pipe.execute_command("HSET", row, "state", "pending")
        pipe.execute_command("ZREM", k.active, job)
        pipe.execute_command("ZADD", k.base + "g:" + group + ":pending" if group else k.pending, 0, job)
        sent += 4
        if sent >= DEPTH:
            pipe.execute()
            sent = 0
    pipe.execute()
    return time.perf_counter() - started


def slices(client: redis.Redis) -> list[float]:
    """Durations of the sweep's calls by the slow log, ms."""
    # Read raw: the client library turns entries into dicts whose shape depends on its version.
    entries = client.execute_command("SLOWLOG", "GET", "-1")
    return [entry[2] / 1000 for entry in entries if entry[3][0].upper() == b"EVALSHA"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = sized(parser, jobs=1_000, rounds=1)
    ids = job_ids(args.jobs)
    times: dict[str, list[float]] = {"sweep": [], "pipelines": []}
    ms: list[float] = []
    with Valkey(slowlog_log_slower_than=-1, slowlog_max_len=100_000) as valkey, connect(valkey.url) as server:
        q, client = Queue(server, "bench"), valkey.client()
        for _ in range(args.rounds):
            seed(client, q, ids)
            client.config_set("slowlog-log-slower-than", 0)
            times["sweep"].append(run_sweep(q, len(ids)))
            client.config_set("slowlog-log-slower-than", -1)
            ms += slices(client)
            seed(client, q, ids)
            times["pipelines"].append(run_baseline(client, q, ids))
    swept, plain = (statistics.median(times[name]) for name in ("sweep", "pipelines"))
    ms.sort()
    print(f"sweep      {args.jobs / swept:12,.0f} jobs/s   (median of {args.rounds})")
    print(f"pipelines  {args.jobs / plain:12,.0f} jobs/s   (the same commands, depth {DEPTH})")
    print(f"ratio      {plain / swept:12.2f}   (at least 1.4, aim 1.8)")
    print(
        f"slice      p99 {ms[int(len(ms) * 0.99)]:.2f} ms, max {ms[-1]:.2f} ms at limit {SLICE}   (p99 at most 10 ms)"
    )


if __name__ == "__main__":
    main()
