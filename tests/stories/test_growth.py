"""A daemon under traffic for a while: nothing grows that retention does not explain.

Retention is minutes here, and merged segments are small, so that a few minutes show what weeks would: merging takes
memory in proportion to what it merges, up to `below`. `GROWTH_MINUTES=60` makes an hour of it; `-s` shows a line a
minute.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import statistics
import time
from pathlib import Path

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.daemons import Daemon, Site, site
from tests.support.passing import kill_row
from tests.support.valkey import Valkey

MINUTES = float(os.environ.get("GROWTH_MINUTES", "2.5"))
WARM_SECONDS = 30.0
SAMPLE_SECONDS = 3.0
QUEUES = [f"q{n}" for n in range(6)]
CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db", retain: 1h}}
archive:
  local: "sqlite:///archive.db"
  remote: {{url: "file:bucket"}}
  ship_after: 1s
  local_keep: 5s
  compact: {{every: 2s, below: 64KiB, compact_grace: 5s}}
  verify: {{every: 5s}}
defaults:
  stalled: {{every: 5s}}
  dead: {{every: 500ms, keep: 5}}
queues:
  "q*": {{streams: {{completions: {{every: 500ms, keep: 20}}}}}}
"""
MERGED = 64 * 1024
KEPT = {"runs", "deaths", "death_rows"}
"""Tables of the state whose rows are kept for as long as the retention says."""


def measured(here: Site, daemon: Daemon) -> dict[str, int]:
    """What could grow, as it is now."""
    proc = Path(f"/proc/{daemon.process.pid}")
    rss = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("VmRSS"))
    with sqlite3.connect(here.folder / "state.db") as state:
        tables = [row[0] for row in state.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {n: state.execute(f'SELECT count(*) FROM "{n}"').fetchone()[0] for n in {*tables} - KEPT}
    with sqlite3.connect(here.folder / "archive.db") as archive:
        chunks = archive.execute("SELECT count(*) FROM archive_chunks").fetchone()[0]
        pages = archive.execute("PRAGMA page_count").fetchone()[0]
    sizes = []
    for path in (here.folder / "bucket").rglob("*.parquet"):
        with contextlib.suppress(FileNotFoundError):  # merged into another meanwhile
            sizes.append(path.stat().st_size)
    return {
        "resident KiB": int(rss.split()[1]),
        "descriptors": len(list((proc / "fd").iterdir())),
        "small segments": sum(size < MERGED for size in sizes),  # the others are what the archive is there for
        "local chunks": chunks,
        "local pages": pages,
        "log lines": daemon.log.read_bytes().count(b"\n"),
        **{f"rows of {name}": count for name, count in rows.items()},
    }


SLACK = {
    "resident KiB": 12_000,
    "descriptors": 8,
    "small segments": 30,
    "local chunks": 60,
    "local pages": 256,
    "log lines": 10 + MINUTES,
}
"""By how much the median of the last third may lie above that of the first, whatever the traffic in between. The log
has a line a minute."""


@pytest.mark.soak(minutes=4)
def test_nothing_grows_that_retention_does_not_explain(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    queues = [Queue(server, name) for name in QUEUES]
    with site(tmp_path, CONFIG.format(url=valkey.url)) as here:
        for q in queues:
            server.write("XADD", q.keys.stream("completions"), "*", "job", "first")
        here.run("apply", "--yes")
        daemon = here.up(verbose=False)
        begun = time.monotonic()
        samples: list[dict[str, int]] = []
        records = dead = 0
        next_sample = begun + WARM_SECONDS
        while time.monotonic() < begun + WARM_SECONDS + MINUTES * 60:
            for q in queues:
                server.write("XADD", q.keys.stream("completions"), "*", "job", f"j{records}")
                records += 1
            kill_row(queues[records % len(queues)], 1)
            dead += 1
            if time.monotonic() >= next_sample:
                samples.append(measured(here, daemon))
                if len(samples) % 20 == 1:
                    print(round(time.monotonic() - begun), samples[-1], flush=True)
                next_sample += SAMPLE_SECONDS
            time.sleep(0.1)  # the pace of the traffic
        third = len(samples) // 3
        assert third >= 5
        grown = {}
        for name in samples[0]:
            first = statistics.median(one[name] for one in samples[:third])
            last = statistics.median(one[name] for one in samples[-third:])
            print(f"{name}: {first:.0f} -> {last:.0f}")
            if last > first + SLACK.get(name, 20):
                grown[name] = (first, last)
        print(f"{records} records, {dead} dead jobs, {len(samples)} samples")
        assert grown == {}
        assert len(daemon.events("summary")) >= 1
        daemon.stop()
        left = sum(server.read("ZCARD", q.keys.dead) for q in queues)
        assert left < dead / 2  # it did its work meanwhile
        rows = sum(here.json("archive", "status", name, "completions")["remote_records"] for name in QUEUES)
        assert rows > records / 2
