"""The dead trim against plain pipelined deletes, in one run.

100,000 dead jobs with 200-byte payloads on a unix socket, all of them removed. Rounds alternate between the trim pass
as a daemon runs it (the ledger knows the dead set, as it does after any earlier pass), the same with a digest of each
row (as an archive asks for; the archive itself is left out), and the baseline: row, logs and member of each job in
pipelines of depth 1,000. Medians. Slice times are the server's own (slow log, which is on for the trims alone). The
first contact of a fresh ledger with the dead set, which reads and keeps every row, is told apart.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import redis

from emq_archive.deadjob import dead_digest
from emq_archive.model import Pair
from emq_archive.write.dead import ArchivedDead, DeadReceipt
from emq_ops.cli.garbage import collect_seldom
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.passes.trim.archiver import DeadArchiver
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.protocol.ids import encode62
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server, connect
from tests.support.passing import sweep, trim
from tests.support.sizes import sized
from tests.support.valkey import Valkey

DEPTH = 1000
ROW: dict[Any, Any] = {"state": "dead", "attempts": "1", "payload": "x" * 200, "last_error": "boom"}


NAMES = tuple(name.encode() for name in ROW)
DIGEST = dead_digest([value.encode() for value in ROW.values()], [])


class Shelf:
    """An archive that has everything already, at no cost: what is measured is the trim."""

    def archive(self, jobs: Sequence[str], facts: Mapping[str, Sequence[Pair]], *, now_ms: int) -> DeadReceipt:
        return DeadReceipt({job: ArchivedDead(job, NAMES, DIGEST, 1, 0) for job in jobs})


def job_ids(count: int) -> list[str]:
    return [f"JOB{encode62(n << 12)}" for n in range(count)]


def seed(client: redis.Redis, q: Queue, ids: list[str]) -> None:
    """Every job dead. Our own keys stay: the lease is held."""
    pipe = client.pipeline(transaction=False)
    for place, job in enumerate(ids):
        pipe.hset(q.keys.row(job), mapping=ROW)
        pipe.zadd(q.keys.dead, {job: 0})
        if place % DEPTH == DEPTH - 1:
            pipe.execute()
    pipe.hincrby(q.keys.failed, "count", len(ids))
    pipe.execute()
    client.slowlog_reset()


def run_baseline(client: redis.Redis, q: Queue, ids: list[str]) -> float:
    started = time.perf_counter()
    pipe = client.pipeline(transaction=False)
    for place, job in enumerate(ids):
        row = q.keys.base + "job:" + job
        pipe.execute_command("DEL", row)
        pipe.execute_command("DEL", row + ":logs")
        pipe.execute_command("ZREM", q.keys.dead, job)
        if place % (DEPTH // 3) == 0:
            pipe.execute()
    pipe.execute()
    return time.perf_counter() - started


def run_trim(server: Server, q: Queue, ledger: Ledger, lead: QueueLease, count: int, *, digest: bool) -> float:
    started = time.perf_counter()
    policy = DeadPolicy(keep=0, archive=digest)
    archiver: DeadArchiver | None = Shelf() if digest else None
    report = trim(server, q.name, policy, ledger, lead.renew(), archiver=archiver, trigger="daemon")
    taken = time.perf_counter() - started
    if report.removed != count:
        raise SystemExit(f"removed {report.removed} of {count}")
    return taken


def slices(client: redis.Redis) -> list[float]:
    """Durations of the trim's own calls by the slow log, ms."""
    sha = load("dead_trim").sha.encode()
    # Read raw: the client library turns entries into dicts whose shape depends on its version.
    entries = client.execute_command("SLOWLOG", "GET", "-1")
    return [entry[2] / 1000 for entry in entries if sha in entry[3]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = sized(parser, jobs=1_000, rounds=1)
    collect_seldom()  # as every command does
    ids = job_ids(args.jobs)
    times: dict[str, list[float]] = {"trim": [], "digest": [], "pipelines": [], "contact": []}
    ms: list[float] = []
    with (
        Valkey(slowlog_log_slower_than=-1, slowlog_max_len=100_000) as valkey,
        connect(valkey.url) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        q, client = Queue(server, "bench"), valkey.client()
        for number in range(args.rounds):
            for kind in ("trim", "digest"):
                with open_ledger(f"sqlite:///{folder}/{number}{kind}.db") as ledger:
                    client.flushall()
                    lead = QueueLease(server, ledger, q.name, lease_ms=600_000)
                    fence = lead.acquire()
                    seed(client, q, ids)
                    started = time.perf_counter()
                    sweep(server, q.name, StalledPolicy(), ledger, fence)
                    times["contact"].append(time.perf_counter() - started)
                    client.config_set("slowlog-log-slower-than", 0)
                    times[kind].append(run_trim(server, q, ledger, lead, len(ids), digest=kind == "digest"))
                    client.config_set("slowlog-log-slower-than", -1)
                    ms += slices(client)
            seed(client, q, ids)
            times["pipelines"].append(run_baseline(client, q, ids))
    trimmed, digested, plain, contact = (
        statistics.median(times[n]) for n in ("trim", "digest", "pipelines", "contact")
    )
    ms.sort()
    print(f"trim       {args.jobs / trimmed:12,.0f} jobs/s   (whole pass, median of {args.rounds})")
    print(f"digest     {args.jobs / digested:12,.0f} jobs/s   (each row compared with what was archived)")
    print(f"pipelines  {args.jobs / plain:12,.0f} jobs/s   (row, logs, member; depth {DEPTH})")
    print(f"ratio      {plain / trimmed:12.2f}   (at least 1.3), with the digest {plain / digested:.2f}")
    print(f"slice      p99 {ms[int(len(ms) * 0.99)]:.2f} ms, max {ms[-1]:.2f} ms   (p99 at most 15 ms)")
    print(f"contact    {args.jobs / contact:12,.0f} jobs/s   (a fresh ledger reads and keeps every row)")


if __name__ == "__main__":
    main()
