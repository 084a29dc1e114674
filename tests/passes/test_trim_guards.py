"""What stops a trim, or goes on beside it: holds, guards, odd keys, full memory, another trim; and what it predicts."""

from __future__ import annotations

import threading

import pytest

from emq_ops.ledger import alerts, holds, runs
from emq_ops.ledger.holds import Hold
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Event
from emq_ops.passes.frame.refusal import ProtectedError
from emq_ops.passes.trim.predict import predict_trim
from emq_ops.passes.trim.report import TrimReport
from emq_ops.policy.models import DeadPolicy
from emq_ops.protocol.errors import BadInputError, DamagedError, EmqError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from tests.support.keyspace import dump
from tests.support.passing import dead_of, kill_row, swept, trimmed
from tests.support.valkey import Valkey


def test_refused(server: Server, ledger: Ledger, mail: Queue) -> None:
    kill_row(mail, 3)
    with pytest.raises(ProtectedError, match="protected"):
        trimmed(server, ledger, keep=0, protect=True)
    with pytest.raises(BadInputError, match="needs keep or max_age"):
        trimmed(server, ledger)
    with pytest.raises(EmqError, match="there is no archive"):
        trimmed(server, ledger, keep=0, archive=True)
    for bad in ({"keep": -1}, {"max_age_ms": -1}, {"slice": 0}, {"age_by": "size"}):
        with pytest.raises(BadInputError):
            DeadPolicy(**bad)  # type: ignore[arg-type]  # that is the test
    now = server.now_ms("mail")
    holds.hold(ledger, Hold("mail", now, now + 60_000, "me"))
    assert trimmed(server, ledger, keep=0).status == "held"
    assert len(dead_of(mail)) == 3


def test_max_removals_stops_before_the_first(server: Server, ledger: Ledger, mail: Queue) -> None:
    kill_row(mail, 12)
    report = trimmed(server, ledger, keep=1, max_removals=10)
    assert (report.status, report.stopped_by, report.removed, report.victims) == ("stopped", "max_removals", 0, 11)
    assert [alert.kind for alert in alerts.listing(ledger)] == ["removals_stopped"]
    assert len(dead_of(mail)) == 12
    assert trimmed(server, ledger, keep=2, max_removals=10).removed == 10


def test_a_dead_set_of_another_type(server: Server, ledger: Ledger, mail: Queue) -> None:
    server.write("SET", mail.keys.dead, "no zset")
    with pytest.raises(DamagedError, match="EMQDATA"):
        trimmed(server, ledger, keep=0)


def test_idle_trims_of_a_daemon_leave_no_row(server: Server, ledger: Ledger, mail: Queue) -> None:
    kill_row(mail, 3)
    assert trimmed(server, ledger, keep=3, trigger="daemon").found_dead == 3
    before = len(runs.latest(ledger))
    assert trimmed(server, ledger, keep=3, trigger="daemon").idle
    assert len(runs.latest(ledger)) == before
    assert trimmed(server, ledger, keep=2, trigger="daemon").removed == 1


def test_c10_at_the_servers_memory_limit(ledger: Ledger) -> None:
    """100 dead to 10 and a sweep, with memory at twice the limit."""
    with Valkey(maxmemory_policy="noeviction") as full, connect(full.url) as server:
        mail = Queue(server, "mail")
        kill_row(mail, 100)
        with full.client() as admin:
            server.write("ZADD", mail.keys.active, server.now_ms("mail") - 5, mint())
            admin.config_set("maxmemory", admin.info("memory")["used_memory"] // 2)
        report = trimmed(server, ledger, keep=10)
        assert (report.removed, report.left) == (90, 10)
        assert swept(server, ledger, "mail").dead == 1


def test_two_trims_at_once_remove_each_job_once(server: Server, ledger: Ledger, mail: Queue) -> None:
    kill_row(mail, 400)
    reports: list[TrimReport] = []
    faults: list[EmqError] = []

    def go() -> None:
        try:
            reports.append(trimmed(server, ledger, keep=10, slice=5))
        except EmqError as fault:
            faults.append(fault)

    threads = [threading.Thread(target=go) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(report.removed for report in reports) == 390
    assert len(dead_of(mail)) == 10
    assert all("leads this queue" in str(fault) or "EMQFENCE" in str(fault) for fault in faults)


# What a dry run says


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), EmqError("the state database is away")])
def test_what_a_trim_removed_before_it_broke_off_is_counted_as_its_own(
    server: Server, ledger: Ledger, mail: Queue, fault: BaseException
) -> None:
    kill_row(mail, 10)

    def breaks(event: Event) -> None:
        if event.name == "slice_trimmed":
            raise fault

    with pytest.raises(type(fault)):
        trimmed(server, ledger, keep=2, archive=False, slice=2, emit=breaks)
    assert len(dead_of(mail)) == 2
    [first] = runs.latest(ledger, kind="trim")
    assert first.counts.get("removed", 0) < 8  # nobody could say
    swept(server, ledger, "mail")
    assert runs.get(ledger, first.id).counts["removed"] == 8
    kill_row(mail, 3)
    assert trimmed(server, ledger, keep=2, archive=False).removed == 3
    told = [run.counts.get("removed", 0) for run in runs.latest(ledger, kind="trim")]
    assert sum(told) == 11


def test_a_prediction_comes_true(server: Server, ledger: Ledger, mail: Queue) -> None:
    dead = kill_row(mail, 30)
    swept(server, ledger, "mail")
    dead += kill_row(mail, 10)  # not in the ledger yet
    server.write("SET", mail.keys.book(dead[2], "lock"), "w", "PX", 60_000)
    server.write("HSET", mail.keys.row(dead[3]), "lock", "w")
    before = dump(server)
    policy = DeadPolicy(keep=12)
    found = predict_trim(server, "mail", policy, ledger)
    assert dump(server) == before
    assert (found.report.status, found.report.removed, found.report.victims) == ("dry", 0, 26)
    report = trimmed(server, ledger, keep=12)
    assert report.removed_jobs == found.report.victim_jobs == list(found.jobs)
    assert [s.job for s in report.skipped] == [s.job for s in found.report.skipped] == dead[2:4]
    assert report.left == found.report.left == 14


def test_a_prediction_without_a_ledger(server: Server, mail: Queue) -> None:
    dead = kill_row(mail, 5)
    found = predict_trim(server, "mail", DeadPolicy(keep=2), None)
    assert found.report.victim_jobs == dead[:3]
