"""``emq-ops queue`` as an operator types it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT

import pytest

from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control, reads
from tests.passes.acts.seeding import die
from tests.support.cli import Ran, emq
from tests.support.passing import add
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
queues:
  orders:
    protect: true
    stalled: {{every: 1h}}
  mail-eu: {{stalled: {{every: 1h}}}}
"""
Ops = Callable[..., Ran]


@pytest.fixture
def ops(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ops:
    """A folder with a config; three queues with work."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG.format(url=valkey.url))
    for name, count in (("orders", 3), ("mail-us", 1), ("mail-eu", 2)):
        q = Queue(server, name)
        die(q)
        add(q, count)
    return emq


def test_ls_sorts_chooses_and_says_what_is_wrong(ops: Ops, server: Server) -> None:
    control.pause_queue(Queue(server, "mail-us"))
    rows = ops("queue", "ls", "--output", "json").json
    assert [(row["queue"], row["waiting"], row["dead"]) for row in rows] == [
        ("mail-eu", 2, 1),
        ("mail-us", 1, 1),
        ("orders", 3, 1),
    ]
    assert [row["protected"] for row in rows] == [False, False, True]
    table = ops("queue", "ls", "-s", "waiting")
    assert [line.split()[0] for line in table.out.splitlines()] == ["queue", "orders", "mail-eu", "mail-us"]
    assert "3 queues, 3 with something wrong" in table.err
    bad = ops("queue", "ls", "--unhealthy").out.splitlines()
    assert [line.split()[0] for line in bad] == ["queue", "mail-eu", "mail-us", "orders"]
    assert bad[1].endswith("1 dead, nobody recorded since when")
    assert bad[2].endswith("paused, and 1 job waits; 1 dead, nobody recorded since when")
    assert [row["queue"] for row in ops("queue", "ls", "mail-*", "--output", "json").json] == ["mail-eu", "mail-us"]
    assert not Path("state.db").exists()
    wrong = ops("queue", "ls", "-s", "waitin")
    assert (wrong.code, "did you mean 'waiting'?" in wrong.err) == (4, True)


def test_watch_looks_again_until_it_is_interrupted(ops: Ops, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "emq_ops.cli.main", "queue", "ls", "--watch", "--every", "50ms", "--output", "jsonl"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as watching:
        assert watching.stdout is not None
        seen = [watching.stdout.readline() for _ in range(7)]
        watching.send_signal(SIGINT)
        assert watching.wait(20) == 0
    assert sum('"queue":"orders"' in line for line in seen) >= 2


def test_pause_and_resume_are_runs_that_say_how_to_go_back(ops: Ops, server: Server) -> None:
    dry = ops("queue", "pause", "mail-*", "--dry-run")
    assert "mail-eu: would be paused (2 wait); nothing was changed" in dry.err
    assert not Path("state.db").exists()
    assert ops("hold", "orders", "--for", "1h").code == 0  # keeps passes away, not whoever stops the queue
    ran = ops("queue", "pause", "orders", "mail-*", "--why", "incident 7")
    assert ran.code == 0, ran.err
    assert re.search(r"orders: paused; 3 wait \(run RUN\w{11}; back: emq-ops queue resume orders\)", ran.err)
    assert all(reads.is_paused(Queue(server, name)) for name in ("orders", "mail-us", "mail-eu"))
    again = ops("queue", "pause", "orders")
    assert (again.code, "paused already; nothing was changed" in again.err) == (0, True)
    rows = ops("runs", "ls", "--kind", "pause", "--output", "json").json
    assert [row["queue"] for row in rows] == ["orders", "mail-us", "mail-eu"]
    assert {row["policy"]["why"] for row in rows} == {"incident 7"}
    assert ops("queue", "resume", "orders", "--output", "json").json[0]["was"] is True
    assert not reads.is_paused(Queue(server, "orders"))
    assert ops("queue", "pause").code == 4


def test_pause_by_url_alone_says_who_else_manages_the_queue(
    ops: Ops, valkey: Valkey, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ops("sweep", "mail-eu").code == 0  # the lease is of the config's state now
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    lane = ids.mint("GRP")
    add(Queue(server, "mail-eu"), 1, group=lane)
    for argv in (("queue", "pause", "mail-eu"), ("queue", "resume", "mail-eu"), ("lane", "pause", "mail-eu", lane)):
        ran = ops("--url", valkey.url, *argv)
        assert (ran.code, len(ran.err.splitlines())) == (0, 2), ran.err
        assert re.search(r"note: mail-eu is managed by state [-\w]{36}, last by \S+@\S+", ran.err)
    assert ops("--url", valkey.url, "queue", "drain", "mail-eu", "--yes").code == 1  # what moves jobs is the owner's


def test_show_tells_all_and_what_to_do_next(ops: Ops, server: Server) -> None:
    q, lane = Queue(server, "orders"), ids.mint("GRP")
    add(q, 2, group=lane)
    control.pause_lane(q, lane)
    control.pause_queue(q)
    server.write("ZADD", q.keys.repeat, server.now_ms("orders") - 600_000, "nightly")
    server.write("HSET", q.keys.repeatable("nightly"), "every_ms", "60000", "template", "x")
    open_ledger("sqlite:///state.db").close()
    assert ops("sweep", "orders").code == 0
    ran = ops("queue", "show", "orders")
    assert ran.code == 0, ran.err
    for text in (
        r"waiting +5 \(3 flat, 2 in 1 lanes\)",
        rf"{lane} +2 ",
        r"nightly +1 min +10 min ago",
        r"stalled.every +1h +config.yaml:7",
        r"RUN\w{11} +sweep +done",
    ):
        assert re.search(text, ran.out), text
    steps = ran.out.split("\n\n")[1].splitlines()  # right behind the summary
    assert steps[0] == "what to do next: 4 things"
    assert {"    emq-ops queue resume orders", f"    emq-ops lane resume orders {lane}"} < set(steps)
    assert any("nobody fires it" in step for step in steps)
    told = ops("queue", "show", "orders", "--output", "json").json
    assert [one["kind"] for one in told["next"]] == ["repeatable_overdue", "paused", "dying", "paused_lane"]
    assert told["lanes"] == [
        {"lane": lane, "waiting": 2, "in_flight": 0, "limit": None, "paused": True, "on_ring": False}
    ]
    assert ops("queue", "show", "ordres").code == 4


def test_drain_shows_asks_takes_and_is_taken_back(ops: Ops, server: Server) -> None:
    q, lane = Queue(server, "mail-eu"), ids.mint("GRP")
    add(q, 2, group=lane)
    before = reads.counts(q)
    dry = ops("queue", "drain", "mail-eu")
    assert (dry.code, "with --yes 4 would be removed" in dry.err) == (0, True)
    ran = ops("queue", "drain", "mail-eu", "--yes")
    assert ran.code == 0, ran.err
    assert (reads.counts(q).pending, reads.lanes(q), reads.counts(q).dead) == (0, [], 1)
    back = re.search(r"to take it back: (emq-ops undo RUN\w{11})", ran.err)
    assert back is not None
    assert ops(*back[1].split()[1:]).code == 0
    assert (reads.counts(q), reads.lanes(q)[0].waiting) == (before, 2)
    for argv in (("drain", "orders", "--yes"), ("obliterate", "orders", "--yes")):
        ran = ops("queue", *argv)
        assert (ran.code, "orders: protected" in ran.err) == (1, True)
    assert ops("queue", "drain", "mail-*", "--yes").code == 4  # of one queue, by its name


def test_obliterate_takes_a_paused_queue_and_its_jobs_can_be_brought_back(ops: Ops, server: Server) -> None:
    q = Queue(server, "mail-eu")
    ran = ops("queue", "obliterate", "mail-eu", "--yes")
    assert (ran.code, "emq-ops queue pause mail-eu" in ran.err) == (1, True)
    assert ops("queue", "pause", "mail-eu").code == 0
    dry = ops("queue", "obliterate", "mail-eu", "--dry-run")
    assert (dry.code, "3 jobs" in dry.err, reads.counts(q).pending) == (0, True, 2)
    ran = ops("queue", "obliterate", "mail-eu", "--yes")
    assert ran.code == 0, ran.err
    assert not list(server.scan("emq:{mail-eu}:*"))
    for run in re.findall(r"emq-ops undo (RUN\w{11})", ran.err):
        assert ops("undo", run).code == 0
    assert (reads.counts(q).pending, reads.counts(q).dead) == (2, 1)
    kinds = [row["kind"] for row in ops("runs", "ls", "mail-eu", "--output", "json").json]
    assert kinds == ["undo", "undo", "obliterate", "remove", "drain", "pause"]


def test_a_lane_that_no_book_names_is_drained_obliterated_and_diagnosed(ops: Ops, server: Server) -> None:
    q, lane = Queue(server, "mail-eu"), ids.mint("GRP")
    [lost] = add(q, 1, group=lane)
    server.write("LREM", q.keys.ring, 0, lane)
    assert reads.lanes(q) == []
    assert [row["subject"] for row in ops("doctor", "mail-eu", "--output", "json").json["findings"]] == [lane]
    ran = ops("queue", "drain", "mail-eu", "--yes")
    assert "mail-eu: 3 removed" in ran.err
    assert server.read("EXISTS", q.keys.lane(lane), q.keys.row(lost)) == 0
    back = re.search(r"emq-ops undo (RUN\w{11})", ran.err)
    assert back is not None
    assert ops("undo", back[1]).code == 0
    server.write("LREM", q.keys.ring, 0, lane)
    assert ops("queue", "pause", "mail-eu").code == 0
    assert "4 jobs, 1 lane" in ops("queue", "obliterate", "mail-eu", "--dry-run").err
    server.write("SET", q.keys.book(lost, "lock"), "1")
    assert ops("queue", "obliterate", "mail-eu", "--yes").code == 1  # it would be lost
    assert ops("queue", "obliterate", "mail-eu", "--force", "--yes").code == 0
    assert not list(server.scan("emq:{mail-eu}:*"))


def test_obliterate_leaves_a_queue_of_which_a_lane_holds_what_no_removal_takes(ops: Ops, server: Server) -> None:
    q, lane = Queue(server, "mail-eu"), ids.mint("GRP")
    [held] = add(q, 1, group=lane)
    server.write("SET", q.keys.book(held, "lock"), "1")
    assert ops("queue", "pause", "mail-eu").code == 0
    ran = ops("queue", "obliterate", "mail-eu", "--yes")
    assert (ran.code, "--force" in ran.err) == (1, True)
    assert server.read("ZRANGE", q.keys.lane(lane), 0, -1) == [held.encode()]
    assert reads.is_paused(q)
