"""``emq-ops job``, ``lane`` and ``worker ls`` as an operator types them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, flows, jobs
from emq_ops.protocol.transitions.enqueue import schedule_in
from emq_ops.protocol.transitions.flows import FlowJob
from emq_ops.protocol.transitions.reads import counts, lanes
from tests.passes.acts.seeding import LONG_MS, die
from tests.support.cli import Ran, emq
from tests.support.keyspace import dump
from tests.support.passing import add, dead_of
from tests.support.valkey import Valkey

Ops = Callable[..., Ran]


@pytest.fixture
def ops(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ops:
    """The command line on a server; the state is in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *argv: emq(*argv, "--url", valkey.url)


def undo_of(ran: Ran) -> str:
    found = re.search(r"to take it back: emq-ops undo (RUN\w{11})", ran.err)
    assert found is not None, ran.err
    return found[1]


def test_jobs_are_removed_by_what_is_in_them_and_brought_back(server: Server, ops: Ops) -> None:
    q, other = Queue(server, "orders"), Queue(server, "mail")
    before = [add(q, payload=b'{"tenant": 42}')[0]]
    server.read("PING")
    keep = [*add(q, payload=b'{"tenant": 7}'), *add(q, payload=b"no json"), *add(other, payload=b'{"tenant": 42}')]
    go = [*add(q, payload=b'{"tenant": 42}'), *add(q, group=ids.mint("GRP"), payload=b'{"tenant": 42}')]
    schedule_in(q, late := ids.mint(), b'{"tenant": 42}', 3_600_000)
    after = ids.at(ids.parse(keep[0]).unix_ms).isoformat()
    argv = ("job", "remove", "--queue", "orders", "--where", "payload.tenant == 42", "--minted-after", after)
    seen = {key: value for key, value in dump(server).items() if not key.endswith("}:wake")}
    dry = ops(*argv, "--dry-run")
    assert "of 1 jobs the condition can't be told" in dry.err
    want = {*go, late} | ({before[0]} if ids.parse(before[0]).unix_ms == ids.parse(keep[0]).unix_ms else set())
    assert f"with --yes {len(want)} would be removed" in dry.err
    ran = ops(*argv, "--yes", "--why", "bad deploy")
    assert ran.code == 0, ran.err
    assert all(jobs.read_row(q, job) is None for job in want)
    assert all(jobs.read_row(q, job) or jobs.read_row(other, job) for job in keep)
    run = undo_of(ran)
    [row] = [one for one in ops("runs", "ls", "--output", "json").json if one["id"] == run]
    assert row["policy"]["selection"]["where"] == "payload.tenant == 42"
    assert ops("undo", run).code == 0
    assert {key: value for key, value in dump(server).items() if not key.endswith("}:wake")} == seen
    for bad, what in ((("--where", "tenant =="), "in the expression"), (("--where", "tenant == 1"), "unknown name")):
        ran = ops("job", "remove", *bad)
        assert (ran.code, what in ran.err, ran.err.count("\n")) == (4, True, 1), ran.err
    assert ops("job", "remove", "--yes").code == 4


def test_find_by_id_and_by_text_goes_on_where_it_ended(server: Server, ops: Ops) -> None:
    q = Queue(server, "orders")
    dead = die(q, payload=b'{"order": "K-17"}')
    add(q, 5)
    [waits] = add(Queue(server, "mail"), payload=b'{"order": "K-17"}')
    rows = ops("job", "find", dead, "--output", "json").json
    assert [(row["queue"], row["state"]) for row in rows] == [("orders", "dead")]
    found, start = [], ""
    for _ in range(10):
        ran = ops("job", "find", "K-17", "--most", "2", "--output", "json", *(["--from", start] if start else []))
        found += [row["job"] for row in ran.json]
        more = re.search(r"--from (\S+)", ran.err)
        if more is None:
            break
        start = more[1]
    assert found == [waits, dead]
    gone = ops("job", "find", ids.mint())
    assert (gone.code, "no job JOB" in gone.err) == (4, True)
    assert [row["job"] for row in ops("job", "ls", "orders", "--state", "dead", "--output", "json").json] == [dead]


def test_show_tells_payload_lease_and_where_a_job_was_last(
    server: Server, ops: Ops, valkey: Valkey, tmp_path: Path
) -> None:
    q = Queue(server, "orders")
    [job] = add(q, payload=b'{"total": [1, 2]}')
    [binary] = add(q, payload=b"\x00\xff\n")
    assert '"total": [' in ops("job", "show", job).out
    assert "hex 00ff0a" in ops("job", "show", binary).out
    argv = [sys.executable, "-m", "emq_ops.cli.main", "job", "show", binary, "--raw", "--url", valkey.url]
    assert subprocess.run(argv, capture_output=True, check=True, cwd=tmp_path).stdout == b"\x00\xff\n"
    assert claims.claim(q, LONG_MS) is not None
    shown = ops("job", "show", job)
    assert re.search(r"lease +until in \d+ min", shown.out)
    assert "emq-ops job extend" in shown.out
    assert "does not say which worker" in shown.out
    assert ops("job", "extend", job, "--for", "2h").code == 0
    assert float(server.read("ZSCORE", q.keys.active, job)) > server.now_ms("orders") + 7_000_000
    assert ops("job", "extend", binary, "--for", "2h").code == 4
    assert ops("job", "remove", binary, "--yes").code == 0
    last = ops("job", "show", binary)
    assert (last.code, "is on the server no more; last seen" in last.out) == (0, True)


def test_jobs_in_hand_and_scheduled_ones_are_delayed_and_waiting_ones_left(server: Server, ops: Ops) -> None:
    q = Queue(server, "orders")
    held, waiting = add(q)[0], add(q, group=ids.mint("GRP"))[0]
    schedule_in(q, late := ids.mint(), b"", 1_000)
    assert claims.claim(q, LONG_MS) is not None
    before = dump(server)
    assert "would be delayed (active)" in ops("job", "delay", held, "--in", "5m", "--dry-run").out
    assert dump(server) == before
    ran = ops("job", "delay", held, late, waiting, "--at", "2090-01-01T00:00:00Z", "--queue", "orders")
    assert (ran.code, ran.out.count("delayed"), "left: it is pending" in ran.out) == (0, 2, True)
    assert server.read("ZRANGE", q.keys.schedule, 0, -1, "WITHSCORES")[1::2] == [b"3786912000000"] * 2
    assert (jobs.read_row(q, held) or {})[b"attempts"] == b"1"
    assert ops("job", "delay", waiting, "--in", "5m").code == 1
    assert ops("job", "delay", held, "--in", "5m", "--at", "10:00").code == 4


def test_a_payload_is_edited_before_a_retry_and_put_back(server: Server, ops: Ops) -> None:
    q, file = Queue(server, "orders"), Path("fixed.json")
    job = die(q, payload=b"broken")
    file.write_bytes(b'{"fixed": true}\n')
    assert ops("job", "edit", job, "--payload", str(file), "--dry-run").code == 0
    ran = ops("job", "edit", job, "--payload", str(file))
    assert (jobs.read_row(q, job) or {})[b"payload"] == b'{"fixed": true}\n'
    assert ops("undo", undo_of(ran)).code == 0
    assert (jobs.read_row(q, job) or {})[b"payload"] == b"broken"
    assert ops("job", "requeue", job, "--reset-attempts").code == 0
    assert (dead_of(q), (jobs.read_row(q, job) or {})[b"attempts"]) == ([], b"0")
    assert "--yes" in ops("job", "cancel", job).err  # it waits, and would be gone for good
    assert "removed" in ops("job", "cancel", job, "--yes").out
    missing = ops("job", "edit", ids.mint(), "--payload", str(file))
    assert (missing.code, "no job" in missing.err) == (4, True)


def test_show_draws_the_flow_and_names_what_one_may_do(server: Server, ops: Ops) -> None:
    orders = Queue(server, "orders")
    leaf = FlowJob(ids.mint(), b"l", "mail")
    inner = FlowJob(ids.mint(), b"i", children=(leaf,))
    many = tuple(FlowJob(ids.mint(), b"c") for _ in range(22))
    root = FlowJob(ids.mint(), b"r", children=(inner, *many))
    flows.add(orders, root)
    out = ops("job", "show", leaf.job).out
    drawn = out.split("its flow:\n")[1].splitlines()
    assert drawn[0] == f"  orders {root.job} awaiting_children, waits for 23"
    assert drawn[1] == f"  |- orders {inner.job} awaiting_children, waits for 1"
    assert drawn[2] == f"  |  `- mail {leaf.job} pending   <- this one"
    assert drawn[22] == "  `- 3 more"
    for job in (root.job, inner.job, leaf.job):
        told = ops("job", "show", job, "--output", "json").json
        assert (told["flow"]["job"], told["flow"]["whole"]) == (root.job, True)
    assert f"\n  emq-ops job edit {leaf.job} --queue mail --payload FILE\n" in out
    [plain] = add(orders, 1)
    told = ops("job", "show", plain, "--output", "json").json
    assert told["flow"] is None
    Path("config.yaml").touch()
    for line in told["may"][0]:  # each does what it says
        argv = line.replace("FILE", "config.yaml").split()[1:]
        assert ops(*argv, "--dry-run").code == 0, line


def test_an_id_that_names_nothing_has_the_nearest(server: Server, ops: Ops) -> None:
    [job] = add(Queue(server, "orders"), 1)
    assert ops("queue", "pause", "orders").code == 0
    [run] = [row["id"] for row in ops("runs", "ls", "--output", "json").json]
    other = job[:-1] + ("0" if job[-1] != "0" else "1")
    for argv in (("show", other), ("show", job[:-2]), ("find", other), ("requeue", other), ("logs", other)):
        ran = ops("job", *argv)
        assert (ran.code, f"did you mean '{job}'?" in ran.err) == (4, True), (argv, ran.err)
    for argv in (("runs", "show", run[:-2]), ("undo", run[:-2]), ("runs", "show", run[:-1] + "!")):
        ran = ops(*argv)
        assert (ran.code, f"did you mean '{run}'?" in ran.err) == (4, True), (argv, ran.err)


def test_lanes_are_seen_bounded_and_stopped(server: Server, ops: Ops) -> None:
    q, small, large = Queue(server, "orders"), ids.mint("GRP"), ids.mint("GRP")
    add(q, 1, group=small)
    add(q, 3, group=large)
    assert [row["lane"] for row in ops("lane", "ls", "orders", "--output", "json").json] == [large, small]
    ran = ops("lane", "limit", "orders", large, "2")
    assert f"back: emq-ops lane limit orders {large} 0" in ran.err
    assert ops("lane", "pause", "orders", large, small).code == 0
    assert [(one.limit, one.paused) for one in sorted(lanes(q), key=lambda one: one.waiting)] == [
        (None, True),
        (2, True),
    ]
    shown = ops("lane", "show", "orders", large)
    assert f"emq-ops lane resume orders {large}" in shown.err
    assert ops("lane", "resume", "orders", large).code == 0
    assert ops("lane", "limit", "orders", large, "0").code == 0
    assert [one.limit for one in lanes(q)] == [None, None]
    gone = ops("lane", "show", "orders", large[:-1] + ("0" if large[-1] != "0" else "1"))
    assert (gone.code, re.search(rf"did you mean .*'{large}'", gone.err) is not None) == (4, True)


def test_who_works_and_who_is_parked(server: Server, ops: Ops, valkey: Valkey) -> None:
    q = Queue(server, "orders")
    add(q, 2)
    assert claims.claim(q, LONG_MS) is not None
    told = ops("worker", "ls", "--output", "json").json
    assert [(row["queue"], row["in_flight"], row["lapsed"]) for row in told["queues"]] == [("orders", 1, 0)]
    assert counts(q).active == 1
