"""The daemon sees to the archive: small segments are merged, old local rows go, and lost bytes are noticed and told."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emq_ops.deploy.store import revisions
from emq_ops.ledger.deploy_schema import revisions as stored
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.daemons import Site, site, wait_for
from tests.support.oracle import Bucket
from tests.support.passing import kill_row
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive:
  local: "sqlite:///archive.db"
  remote: {{url: "file:bucket"}}
  ship_after: 100ms
{upkeep}
queues:
  orders: {{streams: {{completions: {{every: 100ms, keep: 2}}}}}}
"""
SOON = "  compact: {{every: 1s, compact_grace: {grace}, local_keep: {keep}}}\n  verify: {{every: 1s, objects: 50}}"
FIRST = 1_796_000_000_000


@contextlib.contextmanager
def place(folder: Path, valkey: Valkey, server: Server, upkeep: str = "", segments: int = 12) -> Iterator[Site]:
    """A site with an archive of so many segments of one record each."""
    with site(folder, CONFIG.format(url=valkey.url, upkeep=upkeep)) as here:
        here.run("apply", "--yes")
        for n in range(segments):
            server.write("XADD", Queue(server, "orders").keys.stream("completions"), f"{FIRST + n}-0", "job", f"j{n}")
            here.run("archive", "fold", "orders", "completions")
        yield here


def live(here: Site) -> list[str]:
    found = Bucket.folder(here.folder / "bucket").segments("orders", "completions")
    return [str(one["key"]) for one in found]


def jobs(here: Site) -> list[str]:
    rows = here.run("archive", "read", "orders", "completions", "--output", "jsonl").out.splitlines()
    return [dict(json.loads(row)["fields"])["job"] for row in rows]


def test_the_daemon_merges_small_segments_beside_folds_and_reads(
    tmp_path: Path, valkey: Valkey, server: Server
) -> None:
    with place(tmp_path, valkey, server, SOON.format(grace="1h", keep="1h")) as here:
        before = live(here)
        assert len(before) == 12
        daemon = here.up()
        number = len(before)
        while len(live(here)) > 4:  # it goes on folding while it merges, and what is read is whole at any moment
            server.write("XADD", Queue(server, "orders").keys.stream("completions"), f"{FIRST + number}-0", "job", "x")
            number += 1
            assert len(jobs(here)) == number
            assert number < 2_000
            time.sleep(0.1)  # the pace of the folds
        wait_for(lambda: here.json("archive", "status", "orders", "completions")["unshipped"] == 0)
        assert all((here.folder / "bucket" / key).exists() for key in before)  # until the grace is over
        daemon.stop()
        assert here.json("archive", "verify", "orders", "completions")["faults"] == []
        [run, *_] = [one for one in here.json("runs", "ls") if one["kind"] == "compact"]
        assert run["counts"]["merged"] >= 2


def test_objects_past_their_grace_and_old_local_rows_go(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    with place(tmp_path, valkey, server, SOON.format(grace="100ms", keep="100ms")) as here:
        before = live(here)
        daemon = here.up()
        wait_for(lambda: not any((here.folder / "bucket" / key).exists() for key in before))
        wait_for(lambda: here.json("archive", "status", "orders", "completions")["local_rows"] <= 2)
        daemon.stop()
        assert len(list((here.folder / "bucket").rglob("*.parquet"))) == len(live(here)) == 1
        assert jobs(here) == [f"j{n}" for n in range(12)]


def flipped(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


@pytest.mark.long
@pytest.mark.parametrize("harm", [flipped, Path.unlink], ids=["a flipped bit", "a deleted segment"])
def test_lost_bytes_are_noticed_and_told(
    tmp_path: Path, valkey: Valkey, server: Server, harm: Callable[[Path], None]
) -> None:
    with place(tmp_path, valkey, server, "  compact: {enabled: false}\n  verify: {every: 1s, objects: 2}", 5) as here:
        daemon = here.up()
        wait_for(lambda: [run for run in here.json("runs", "ls") if run["kind"] == "verify"])
        victim = live(here)[0]
        harm(here.folder / "bucket" / victim)
        [alert] = wait_for(lambda: [e for e in daemon.events("alerted") if e["kind"] == "archive_damaged"])
        assert victim in alert["text"]
        task = wait_for(lambda: next((r for r in here.json("ps") if r["task"] == "verify" and r["failures"]), None))
        assert victim in task["error"]
        found = here.json("doctor", code=2)["findings"]
        assert any(one["kind"] == "archive_damaged" and victim in one["detail"] for one in found)
        # It goes on, and says it once.
        again = wait_for(
            lambda: next((r for r in here.json("ps") if r["task"] == "verify" and r["failures"] > 2), None)
        )
        assert again["runs"] > task["failures"]
        assert len([e for e in daemon.events("alerted") if e["kind"] == "archive_damaged"]) == 1
        daemon.stop()


def test_an_emptied_bucket_is_noticed_though_there_is_nothing_to_fold(
    tmp_path: Path, valkey: Valkey, server: Server
) -> None:
    with place(tmp_path, valkey, server, "  verify: {every: 1s}", 3) as here:
        assert here.json("archive", "status", "orders", "completions")["remote_head"] == "there"
        daemon = here.up()
        (here.folder / "bucket").rename(here.folder / "gone")
        (here.folder / "bucket").mkdir()
        [alert] = wait_for(lambda: [e for e in daemon.events("alerted") if e["kind"] == "archive_damaged"])
        assert "missing" in alert["text"]
        daemon.stop()
        assert here.json("archive", "status", "orders", "completions", code=1)["remote_head"] == "missing"
        assert here.json("doctor", code=2)["findings"]


def test_an_existing_archive_gets_it_as_a_change_of_the_plan(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    with place(tmp_path, valkey, server, segments=0) as here:
        with open_ledger(f"sqlite:///{tmp_path}/state.db") as ledger:
            found = revisions.current(ledger)
            assert found is not None
            orders = found.document.queues["orders"]
            for name in ("compact", "verify"):  # as an earlier version stored it
                del orders[name]
            whole = {"document": revisions.pack(found.document.text)}
            with ledger.write() as connection:
                connection.execute(stored.update().values(whole))
        ran = here.run("plan", code=2)
        assert "+ orders/compact" in ran.out
        assert "+ orders/verify" in ran.out
        here.run("apply", "--yes")
        here.run("plan")


DEAD = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive:
  local: "sqlite:///archive.db"
  remote: {{url: "file:bucket"}}
  local_keep: 100ms
  compact: {{every: 1s}}
queues:
  orders: {{dead: {{every: 200ms, keep: 0}}}}
"""


def test_rows_of_dead_jobs_go_too_and_the_remote_brings_the_jobs_back(
    tmp_path: Path, valkey: Valkey, server: Server
) -> None:
    q = Queue(server, "orders")
    with site(tmp_path, DEAD.format(url=valkey.url)) as here:
        here.run("apply", "--yes")
        daemon = here.up()
        jobs = kill_row(q, 3)
        wait_for(lambda: not server.read("ZCARD", q.keys.dead))
        # Nothing is left to trim: what sees to the archive prunes all the same.
        wait_for(lambda: here.json("archive", "status", "orders", "dead")["local_rows"] == 0)
        daemon.stop()
        with sqlite3.connect(tmp_path / "state.db") as state:
            state.execute("DELETE FROM death_rows")  # the state has snapshots of its own
        here.run("archive", "rehydrate", "orders", "--job", jobs[1])
        assert server.read("HGET", q.keys.row(jobs[1]), "payload") == b"p"
