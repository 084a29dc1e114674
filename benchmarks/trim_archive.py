"""The dead trim with ``archive: true`` (SQLite FULL and a directory, shipped, read back, digest compared) against the
same trim without, in one run.

Dead jobs with 200-byte payloads on a unix socket, all of them removed, as a daemon does it (the ledger knows the dead
set). Rounds alternate; medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import redis

from benchmarks.trim import job_ids, seed
from emq_archive.local import open_local
from emq_archive.model import Policy, Writer
from emq_archive.remote import open_remote
from emq_archive.write.dead import DeadArchive
from emq_ops.cli.garbage import collect_seldom
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from tests.support.passing import sweep, trim
from tests.support.sizes import sized
from tests.support.valkey import Valkey


def run(server: Server, q: Queue, folder: Path, ids: list[str], client: redis.Redis, *, archive: bool) -> float:
    """Seconds of one whole pass."""
    with open_ledger(f"sqlite:///{folder}/state.db") as ledger, open_local(f"sqlite:///{folder}/local.db") as local:
        server.write("FLUSHALL")
        lead = QueueLease(server, ledger, q.name, lease_ms=600_000)
        fence = lead.acquire()
        seed(client, q, ids)
        sweep(server, q.name, StalledPolicy(), ledger, fence)
        remote = open_remote(f"file:{folder}/bucket")
        writer = Writer(fence.state, fence.token, "benchmark")
        archiver = DeadArchive(q, local, remote, Policy(), writer) if archive else None
        policy = DeadPolicy(keep=0, archive=archive)
        started = time.perf_counter()
        report = trim(server, q.name, policy, ledger, lead.renew(), archiver=archiver, trigger="daemon")
        taken = time.perf_counter() - started
        if report.removed != len(ids):
            raise SystemExit(f"removed {report.removed} of {len(ids)}")
        return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = sized(parser, jobs=1_000, rounds=1)
    collect_seldom()  # as every command does
    ids = job_ids(args.jobs)
    times: dict[bool, list[float]] = {False: [], True: []}
    with Valkey() as valkey, connect(valkey.url) as server, valkey.client() as client:
        q = Queue(server, "bench")
        for _ in range(args.rounds):
            for archive in times:
                with tempfile.TemporaryDirectory(prefix="emqb-") as folder:
                    times[archive].append(run(server, q, Path(folder), ids, client, archive=archive))
    without, archived = statistics.median(times[False]), statistics.median(times[True])
    print(f"trim       {args.jobs / without:12,.0f} jobs/s   (median of {args.rounds})")
    print(f"archived   {args.jobs / archived:12,.0f} jobs/s   (row, logs and facts archived and proven first)")
    print(f"ratio      {without / archived:12.2f}   (at least 0.15)")


if __name__ == "__main__":
    main()
