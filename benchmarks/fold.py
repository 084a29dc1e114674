"""Folding a stream: records a second, and the share of a bare drain's speed, in one run.

Each size: the stream is drained by bare paged XRANGE (raw replies) and folded into a fresh SQLite (FULL) and a fresh
directory, read back and chained, by turns; medians. Every measurement is a process of its own, so its peak memory is
its own too, and what a process imports once for its first fold is not in it. The ratio of processor times stands beside
that of the clock: on a busy host it says more. Nothing is trimmed while it is measured; one trim of everything follows,
and the server's own time for it.

    python -m benchmarks.fold [--sizes 200000,2000000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet  # noqa: F401  # a fold imports it when it first needs it

from emq_archive.driver import Driver
from emq_archive.live import PAGE
from emq_archive.local.store import open_local
from emq_archive.model import Policy, Writer
from emq_archive.remote import open_remote
from emq_archive.source import StreamSource
from emq_ops.protocol.ids import LOW_BITS, BrandedId
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from tests.support.sizes import sized
from tests.support.valkey import Valkey

QUEUE, STREAM = "bench", "completions"
STATE = "6b3f1c1e-0000-4000-8000-000000000001"
MINT_MS = 60_000_000_000
"""Snowflake milliseconds of the first record."""


def fill(valkey: Valkey, records: int) -> None:
    """A stream of `records` settled jobs of five short fields, one a millisecond or so."""
    with connect(valkey.url) as server, valkey.client() as client:
        key = Queue(server, QUEUE).keys.stream(STREAM)
        pipe = client.pipeline(transaction=False)
        for i in range(records):
            event = BrandedId("EVT", MINT_MS + i << LOW_BITS | i & 0xFFF)
            job = BrandedId("JOB", MINT_MS - 5000 + i << LOW_BITS | i & 0xFFF)
            pipe.execute_command(
                "XADD", key, event.stream_id, "id", event.text, "job", job.text, "outcome", "completed",
                "attempts", str(1 + i % 3), "result", f"ok {i * 7919 % 100_000}",
            )  # fmt: skip
            if i % 5000 == 4999:
                pipe.execute()
        pipe.execute()


def drain(url: str) -> int:
    """Reads the whole stream in pages, as the driver does, and keeps nothing."""
    with connect(url) as server:
        key = Queue(server, QUEUE).keys.stream(STREAM)
        start, count = "-", 0
        while True:
            page = server.read("XRANGE", key, start, "+", "COUNT", PAGE)
            count += len(page)
            if len(page) < PAGE:
                return count
            start = "(" + page[-1][0].decode()


def fold(url: str, root: Path, policy: Policy) -> dict[str, Any]:
    """One forced cycle of a fresh driver."""
    with connect(url) as server, open_local(f"sqlite:///{root}/local.db") as local:
        remote = open_remote(f"file:{root}/bucket")
        driver = Driver(StreamSource(Queue(server, QUEUE), STREAM), local, remote, policy, None, Writer(STATE))
        return driver.cycle(force=True).as_row()


def measure(args: list[str]) -> dict[str, Any]:
    """Runs this file in a process of its own, and returns what it measured."""
    command = [sys.executable, "-m", "benchmarks.fold", *args]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def child(kind: str, url: str, root: Path) -> None:
    started, busy = time.perf_counter(), time.process_time()
    if kind == "drain":
        count = drain(url)
    else:
        count = fold(url, root, Policy(keep=0 if kind == "trim" else None))["trimmed" if kind == "trim" else "folded"]
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"records": count, "seconds": seconds, "processor_s": busy, "peak_mib": peak}))


def bench(records: int, rounds: int) -> dict[str, Any]:
    """All rounds of one size."""
    with Valkey() as valkey, tempfile.TemporaryDirectory(prefix="emqb-") as folder:
        fill(valkey, records)
        drains: list[dict[str, Any]] = []
        folds: list[dict[str, Any]] = []
        root = Path(folder) / "fold"
        for _ in range(rounds):
            drains.append(measure(["--child", "drain", "--url", valkey.url]))
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            folds.append(measure(["--child", "fold", "--url", valkey.url, "--root", str(root)]))
        assert all(run["records"] == records for run in drains + folds)
        parquet = sum(file.stat().st_size for file in root.rglob("*.parquet"))
        sqlite = sum(file.stat().st_size for file in root.glob("local.db*"))
        with valkey.client() as client:
            client.config_resetstat()
            client.config_set("slowlog-log-slower-than", 0)
            client.config_set("slowlog-max-len", 10_000)
            client.slowlog_reset()
            trim = measure(["--child", "trim", "--url", valkey.url, "--root", str(root)])
            scripts = [
                entry["duration"] for entry in client.slowlog_get(10_000) if b"EVALSHA" in entry["command"].upper()
            ]
        assert trim["records"] == records
    drain_s, fold_s = (statistics.median(run["seconds"] for run in runs) for runs in (drains, folds))
    drain_busy, fold_busy = (statistics.median(run["processor_s"] for run in runs) for runs in (drains, folds))
    return {
        "records": records,
        "drain_per_s": records / drain_s,
        "fold_per_s": records / fold_s,
        "ratio": drain_s / fold_s,
        "processor_ratio": drain_busy / fold_busy,
        "peak_mib": max(run["peak_mib"] for run in folds),
        "sqlite_bytes_per_record": sqlite / records,
        "parquet_bytes_per_record": parquet / records,
        "known_then_trimmed_s": trim["seconds"],
        "trim_us_per_record": sum(scripts) / records,
        "slice_ms": statistics.median(sorted(scripts)[len(scripts) // 2 :]) / 1000,
        "slowest_slice_ms": max(scripts) / 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default="200000,2000000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", choices=["drain", "fold", "trim"])
    parser.add_argument("--url", default="")
    parser.add_argument("--root", type=Path, default=Path())
    args = sized(parser, sizes="2000,4000", rounds=1)
    if args.child:
        child(args.child, args.url, args.root)
        return
    results = [bench(int(size), args.rounds) for size in args.sizes.split(",")]
    for r in results:
        print(
            f"fold {r['records']:>9,}: {r['fold_per_s']:>8,.0f} records/s, bare drain {r['drain_per_s']:>8,.0f}/s, "
            f"ratio {r['ratio']:.2f} (at least 0.20), of processor time {r['processor_ratio']:.2f};\n"
            f"     peak {r['peak_mib']:.0f} MiB (under 400); at rest "
            f"{r['sqlite_bytes_per_record']:.1f} B SQLite, {r['parquet_bytes_per_record']:.1f} B Parquet a record\n"
            f"     its trim, outside of the ratio: {r['trim_us_per_record']:.1f} us of server time a record to compare "
            f"and remove, {r['slice_ms']:.1f} ms a slice (about 10), slowest {r['slowest_slice_ms']:.1f} ms"
        )
    if len(results) > 1:
        grown = results[-1]["peak_mib"] / results[0]["peak_mib"]
        print(f"peak memory, largest to smallest: {grown:.2f} (at most 1.20)")


if __name__ == "__main__":
    main()
