"""The playbooks that ship, each in the situation that it is for; a second run changes nothing."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from emq_archive.local.store import open_local
from emq_archive.remote import open_remote
from emq_ops.cli.main import main
from emq_ops.ledger import holds, interruptions
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.frame.stores import Stores
from emq_ops.playbook.context import QueuePolicy
from emq_ops.playbook.errors import PlaybookError
from emq_ops.playbook.play import shipped
from emq_ops.playbook.runner import Ended
from emq_ops.policy.models import DeadPolicy, StalledPolicy, StreamPolicy
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.worker import Consumer, ConsumerSettings
from tests.playbook.bench import Bench
from tests.support.passing import add, kept, lapse, sweep, take, until
from tests.support.valkey import Valkey


def changed(ended: Ended) -> int:
    return sum(tally.changed for tally in ended.tallies.values())


def add_archive(bench: Bench, **policy: Any) -> None:
    """Gives a bench an archive in its folder, and the config's word on it."""
    folder = bench.folder.parent

    bench.extra_ops["stores"] = Stores(
        lambda: open_local(f"sqlite:///{folder}/archive.db"), lambda: open_remote(f"file:{folder}/bucket")
    )
    bench.policy = QueuePolicy(**policy)


def test_restart_recovery(tmp_path: Path, empty_state: Path) -> None:
    shutil.copy(empty_state, tmp_path / "state.db")
    with (
        Valkey(appendonly="yes", appendfsync="always") as valkey,
        connect(valkey.url) as server,
        open_ledger(f"sqlite:///{tmp_path}/state.db") as ledger,
    ):
        bench = Bench(server, ledger, tmp_path)
        policy = StalledPolicy(restart="count", lease_ms=300)
        bench.policy = QueuePolicy(stalled=policy)
        q = Queue(server, "orders")
        add(q, 1)
        with kept(server, ledger, "orders") as fence:  # the ledger knows the life before the restart
            sweep(server, "orders", policy, ledger, fence)
        add(q, 7)
        killed = take(q, 8, lease_ms=300)
        valkey.restart()
        lapse(q)
        checked = bench.play("restart-recovery", check=True)
        assert (checked.status, changed(checked)) == ("done", 1)
        with Consumer(q, lambda _job: None, ConsumerSettings(recovery="none")):
            ended = bench.play("restart-recovery", extra=["rate=1000"])
        assert ended.status == "done"
        assert bench.result("Collect leases that the restart cut")["dead"] == 8
        assert bench.result("Look for jobs that the restart may have killed")["count"] == 8
        assert sorted(bench.result("Put the suspects back to wait")["ids"]) == sorted(killed)
        assert sorted(bench.result("Verify that they complete")["completed"]) == sorted(killed)
        assert bench.seen("orders") == {}
        assert [cut.kind for cut in interruptions.listing(ledger, "orders")] == ["restart"]
        again = bench.play("restart-recovery")
        assert (again.status, changed(again)) == ("done", 0)


def test_restart_recovery_says_when_a_job_dies_again(bench: Bench) -> None:
    bench.put("orders", {"dead": {"A": "stalled"}})
    bench.extra_ops["suspects"] = lambda _queue: lambda job: job.cause == "stalled"

    def dies() -> None:
        q = Queue(bench.server, "orders")
        until(lambda: bench.seen("orders").get("pending"), "requeued")
        take(q, 1)
        lapse(q)
        with kept(bench.server, bench.ledger, "orders") as fence:
            sweep(bench.server, "orders", StalledPolicy(), bench.ledger, fence)

    poison = threading.Thread(target=dies)
    poison.start()
    ended = bench.play("restart-recovery")
    poison.join()
    assert ended.status == "failed"
    assert bench.message("Verify that they complete") == "1 of the jobs died"


def test_deploy_window(bench: Bench) -> None:
    q = Queue(bench.server, "orders")
    opened = bench.play("deploy-window", extra=["length=1h"]) if add(q, 5) else None
    assert opened is not None
    assert (opened.status, changed(opened)) == ("done", 1)
    reopened = bench.play("deploy-window", extra=["length=1h"])  # by its nature
    assert (reopened.status, changed(reopened)) == ("done", 1)
    taken = take(q, 5)  # a worker that the deploy kills
    lapse(q)
    closed = bench.play("deploy-window", extra=["phase=close"])
    assert (closed.status, changed(closed)) == ("done", 2)
    assert bench.result("Collect leases that lapsed in the window")["exempted"] == 5
    assert sorted(bench.result("Collect leases that lapsed in the window")["recovered_ids"]) == sorted(taken)
    now = bench.server.now_ms("orders")
    assert [w for w in holds.all_windows(bench.ledger) if w.end_ms > now] == []
    again = bench.play("deploy-window", extra=["phase=close"])
    assert (again.status, changed(again)) == ("done", 0)


def test_deploy_window_pauses_and_waits(bench: Bench) -> None:
    q = Queue(bench.server, "orders")
    add(q, 3)
    going = threading.Event()

    def slow(_job: Any) -> None:
        going.wait(20)

    with Consumer(q, slow, concurrency=1):
        until(lambda: "active" in bench.seen("orders"), "taken")
        letting = threading.Thread(target=lambda: (until(lambda: bench.seen("orders").get("paused")), going.set()))
        letting.start()
        ended = bench.play("deploy-window", extra=["pause_queue=true"])
        letting.join()
        assert ended.status == "done"
        assert bench.seen("orders")["paused"]
        assert "active" not in bench.seen("orders")
        assert bench.play("deploy-window", extra=["phase=close"]).status == "done"
        until(lambda: bench.seen("orders") == {}, "all done")


def test_deploy_window_gives_up_and_resumes(bench: Bench) -> None:
    bench.put("orders", {"active": {"A": 60000}})
    ended = bench.play("deploy-window", extra=["pause_queue=true", "patience=50ms"])
    assert ended.status == "failed"
    assert bench.message("Say why").startswith("the queue did not run empty: not within 0.05 s: 1 active")
    assert bench.seen("orders") == {"active": ["A"], "rows": 1}


def test_deploy_window_of_no_phase(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A"]})
    assert bench.play("deploy-window", extra=["phase=start"]).status == "failed"
    assert bench.message("Know the phase") == "phase is 'start': open or close"


def test_dead_letter_triage(bench: Bench) -> None:
    dead = {"A": "connect timeout after 30 ms", "B": "stalled", "C": "bad record", "D": "HTTP 503", "E": "bad record"}
    bench.put("orders", {"dead": dead})
    add_archive(bench, dead=DeadPolicy(keep=1000))
    before = bench.keyspace()
    checked = bench.play("dead-letter-triage", check=True)
    assert (checked.status, changed(checked)) == ("done", 2)
    assert bench.keyspace() == before
    assert bench.result("Archive and trim the rest")["removed_ids"] == ["B", "C", "E"]
    ended = bench.play("dead-letter-triage")
    assert (ended.status, changed(ended)) == ("done", 2)
    assert bench.result("Group the dead by error")["causes"] == {"error": 4, "stalled": 1}
    assert bench.result("Give transient errors another try")["ids"] == ["A", "D"]
    trimmed = bench.result("Archive and trim the rest")
    assert (trimmed["removed"], trimmed["archived"]) == (3, 3)
    assert bench.seen("orders") == {"pending": ["A", "D"], "rows": 2}
    again = bench.play("dead-letter-triage")
    assert (again.status, changed(again)) == ("done", 0)


def test_drain_and_retire(bench: Bench) -> None:
    q = Queue(bench.server, "orders")
    bench.put(
        "orders", {"dead": {"A": "x"}, "schedule": {"B": 3_600_000}, "lanes": {"G": ["C"]}, "streams": {"audit": 9}}
    )
    add_archive(bench, streams={"audit": StreamPolicy(keep=1000), "completions": StreamPolicy(keep=1000)})
    add(q, 2)
    going = threading.Event()

    def slow(_job: Any) -> None:
        going.wait(20)

    with Consumer(q, slow, ConsumerSettings(claim=("flat",)), concurrency=2):
        until(lambda: len(bench.seen("orders").get("active", [])) == 2, "taken")
        add(q, 1)
        letting = threading.Thread(target=lambda: (until(lambda: bench.seen("orders").get("paused")), going.set()))
        letting.start()
        ended = bench.play("drain-and-retire", queues=["orders"])
        letting.join()
    assert ended.status == "done", bench.outcomes()
    assert bench.result("Archive the dead")["removed"] == 1
    assert bench.result("Archive the event streams")["trimmed"] == 9 + 2
    assert bench.result("Take it away")["removed"] == 3  # one pending, one scheduled, one in a lane
    assert {k for k in bench.keyspace() if ":stream:" not in k} == set()
    again = bench.play("drain-and-retire", queues=["orders"])
    assert (again.status, changed(again)) == ("done", 0)


def test_drain_and_retire_refuses_what_waits(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A", "B"]})
    before = bench.keyspace()
    with pytest.raises(
        PlaybookError, match=r"'Drain and retire' runs on no queue that is not named \(--queues QUEUE\)"
    ):
        bench.play("drain-and-retire")
    assert bench.keyspace() == before
    ended = bench.play("drain-and-retire", queues=["orders"], extra=["refuse_waiting=true"])
    assert (ended.status, bench.message("Nothing may wait")) == ("failed", "2 jobs still wait")
    assert bench.keyspace() == before


def test_archive_catch_up(bench: Bench) -> None:
    bench.put("orders", {"streams": {"completions": 120, "audit": 7}})
    bench.put("mail", {"pending": ["A"]})
    add_archive(bench, streams={"completions": StreamPolicy(keep=50), "audit": StreamPolicy()})
    checked = bench.play("archive-catch-up", check=True, queues=["orders"])
    assert checked.status == "done"
    assert bench.result("Archive up to the top")["folded"] == 127
    ended = bench.play("archive-catch-up")
    assert ended.status == "done"
    cycle = bench.result("Archive up to the top")
    assert (cycle["folded"], cycle["trimmed"], cycle["lag_records"]) == (127, 70, 0)
    assert bench.server.read("XLEN", Queue(bench.server, "orders").keys.stream("completions")) == 50
    again = bench.play("archive-catch-up")
    assert (again.status, changed(again)) == ("done", 0)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ({"pending": []}, ""),
        ({"active": {"A": -300_000}}, "seen.longest_lapsed_ms <= max_lapsed_ms"),
        ({"schedule": {"A": -300_000}}, "seen.longest_overdue_ms <= max_overdue_ms"),
        ({"pending": ["A"]}, "seen.oldest_pending_ms <= max_waiting_ms"),
        ({"dead": {"A": "x", "B": "x"}}, "seen.dead <= max_dead"),
        ({"lanes": {"G": ["A"]}, "paused": True}, "allow_paused or not seen.paused or seen.waiting == 0"),
    ],
)
def test_health_check(bench: Bench, words: dict[str, Any], wrong: str) -> None:
    bench.put("orders", words)
    bench.configured = ["orders"]
    before = bench.keyspace()
    ended = bench.play("health-check", extra=["max_dead=1"])
    assert ended.status == ("failed" if wrong else "done")
    if wrong:
        assert bench.message("Healthy").startswith(f"it does not hold that {wrong} (")
        assert wrong.split(" ")[0] + " is " in bench.message("Healthy")
    again = bench.play("health-check", extra=["max_dead=1"])
    assert (again.status, changed(ended), changed(again)) == (ended.status, 0, 0)
    assert bench.keyspace() == before


@pytest.mark.parametrize("name", sorted(shipped()))
def test_checks_cleanly_on_an_idle_configured_queue(
    name: str, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with valkey.client() as admin:
        admin.flushall()
    config = f"server: {{url: 'unix://{valkey.socket}'}}\nqueues: {{orders: {{}}}}\n"
    (tmp_path / "config.yaml").write_text(config)
    monkeypatch.chdir(tmp_path)
    assert main(["play", name, "--queues", "orders", "--check", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recap"]["orders"]["failed"] == 0
    assert document["status"] == "done"
    with valkey.client() as admin:
        assert admin.keys() == []
    text = (shipped()[name]).read_text()
    assert text.startswith("# ")  # it says what it is for
