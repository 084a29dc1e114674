"""What stops a sweep, or ends it early: holds, bursts, time, damage, lost leases; and what it predicts."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emq_ops.ledger import alerts, deaths, holds, interruptions, runs
from emq_ops.ledger.holds import Hold, Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Event
from emq_ops.passes.sweep.predict import predict_sweep
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError, DamagedError, DeadlineError, FenceError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import aside
from emq_ops.protocol.transitions.claims import claim
from tests.support.keyspace import dump, of_emq
from tests.support.passing import add, dead_of, lapse, leading, stall, sweep, swept, take
from tests.support.valkey import Valkey


def test_a_held_queue_is_left_alone(server: Server, ledger: Ledger, mail: Queue) -> None:
    stall(mail)
    now = server.now_ms("mail")
    holds.hold(ledger, Hold("mail", now, now + 60_000, "me"))
    report = swept(server, ledger, "mail")
    assert (report.status, report.notes, report.held_until_ms) == ("held", ["held by me"], now + 60_000)
    assert server.read("ZCARD", mail.keys.active) == 1
    holds.release(ledger, "mail")
    assert swept(server, ledger, "mail").dead == 1


@pytest.mark.parametrize(
    ("guard", "stops"),
    [
        ({"max_removals": 9}, True),
        ({"max_removals": 10}, False),
        ({"max_removals": 0}, True),
        ({"max_share": 0.49}, True),
        ({"max_share": 0.5}, False),
        ({"max_share": 0.5, "max_removals": 9}, True),
        ({}, False),
    ],
)
def test_the_burst_guard(server: Server, ledger: Ledger, mail: Queue, guard: dict[str, Any], stops: bool) -> None:
    stall(mail, 10)
    add(mail, 10)
    take(mail, 10, 60_000)
    events: list[Event] = []
    with leading(server, ledger, "mail") as fence:
        report = sweep(server, "mail", StalledPolicy(limit=4, **guard), ledger, fence, emit=events.append)
    assert report.dead == (0 if stops else 10)
    assert len(dead_of(mail)) == report.dead
    said = [alert.kind for alert in alerts.listing(ledger)]
    assert said == (["burst_stopped"] if stops else ["burst"])
    assert [e.facts()["kind"] for e in events if e.name == "alerted"] == said
    if stops:
        assert report.stopped_by in guard
        assert runs.get(ledger, str(report.run)).status == "stopped"
        assert server.read("ZCARD", mail.keys.active) == 20


def test_the_burst_guard_counts_only_who_would_die(server: Server, ledger: Ledger, mail: Queue) -> None:
    stall(mail, 10)
    assert swept(server, ledger, "mail", max_stalled=2, max_removals=0).recovered == 10
    now = server.now_ms("mail")
    take(mail, 10)
    lapse(mail)
    holds.open_window(ledger, Window("*", now, now + 60_000))
    assert swept(server, ledger, "mail", max_stalled=2, max_removals=0).exempted == 10


def time_flies(*, leaving: float) -> None:
    """So many seconds are left of the bound that this thread is under, without a wait."""
    deadline._until.set(time.monotonic() + leaving)


def test_the_time_runs_out(server: Server, ledger: Ledger, mail: Queue) -> None:
    """The pass ends in time to say how it ended; the next one goes on."""
    stall(mail, 5)
    with leading(server, ledger, "mail") as fence, deadline.deadline(300):

        def dawdle(event: Event) -> None:
            if event.name == "slice_swept":  # a second is kept for the end
                time_flies(leaving=0.9)

        report = sweep(server, "mail", StalledPolicy(limit=2), ledger, fence, emit=dawdle)
    assert (report.more, report.dead, report.status) == (True, 2, "done")
    assert runs.get(ledger, str(report.run)).counts == {"dead": 2}
    assert swept(server, ledger, "mail").dead == 3


def test_a_failure_is_recorded_after_the_time_ran_out(server: Server, ledger: Ledger, mail: Queue) -> None:
    stall(mail, 1)

    def dawdle(event: Event) -> None:
        if event.name == "pass_started":
            time_flies(leaving=0)

    with leading(server, ledger, "mail") as fence, pytest.raises(DeadlineError), deadline.deadline(300):
        sweep(server, "mail", StalledPolicy(), ledger, fence, emit=dawdle)
    [run] = runs.latest(ledger)
    assert run.status == "failed"
    assert "time" in str(run.error)


# Bad input


@pytest.mark.parametrize(
    "harm",
    [
        lambda mail, job: ("SET", mail.keys.pending, "no zset"),
        lambda mail, job: ("SET", mail.keys.exempt, "no hash"),
    ],
)
def test_damaged_data_is_one_clear_error_and_nothing_changes(
    server: Server, ledger: Ledger, mail: Queue, harm: Any
) -> None:
    [job] = stall(mail)
    server.write(*harm(mail, job))
    before = of_emq(dump(server))
    with pytest.raises(DamagedError, match="EMQDATA"):
        swept(server, ledger, "mail")
    assert of_emq(dump(server)) == before
    assert list(deaths.iterate(ledger)) == []


@pytest.mark.parametrize(
    "harm",
    [
        lambda mail, job: ("HSET", mail.keys.row(job), "stalled", "many"),
        lambda mail, job: ("ZADD", mail.keys.active, 1733, job),  # seconds, or worse
        lambda mail, job: ("ZADD", mail.keys.active, mail.server.now_ms("mail") - 9_000_000, "no id"),
    ],
)
def test_one_bad_lease_is_set_aside_and_the_rest_swept(server: Server, ledger: Ledger, mail: Queue, harm: Any) -> None:
    one, other = stall(mail, count=2)
    words = harm(mail, one)
    server.write(*words)
    report = swept(server, ledger, "mail")
    bad = "no id" if "no id" in words else one
    assert list(aside.listing(mail)) == [bad]
    assert {death.job for death in deaths.iterate(ledger)} == ({one, other} - {bad})
    assert report.status == "done"


def test_a_lost_lease_writes_nothing(server: Server, ledger: Ledger, mail: Queue) -> None:
    stall(mail)
    with leading(server, ledger, "mail") as fence:
        pass
    with pytest.raises(FenceError):
        sweep(server, "mail", StalledPolicy(), ledger, fence)
    assert server.read("ZCARD", mail.keys.active) == 1
    assert [run.status for run in runs.latest(ledger)] == ["failed"]


@pytest.mark.parametrize(
    "policy",
    [
        {"max_stalled": 0},
        {"limit": 0},
        {"limit": 10_001},
        {"lease_ms": 0},
        {"max_exempt": -1},
        {"max_share": 0.0},
        {"max_share": 1.1},
        {"restart": "never"},
        {"executor": "native", "restart": "count"},
        {"max_removals": -1},
    ],
)
def test_policies_that_can_not_be(policy: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        StalledPolicy(**policy)


# What a dry run says is what the run then does


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_a_prediction_comes_true(server: Server, valkey: Valkey, ledger: Ledger, data: st.DataObject) -> None:
    with valkey.client() as admin:
        admin.flushall()
    mail = Queue(server, "mail")
    swept(server, ledger, "mail")
    now = server.now_ms("mail")
    count = data.draw(st.integers(0, 8))
    mine = add(mail, count)
    for job in mine:
        claim(mail, 60_000)
        lapsed = data.draw(st.booleans())
        server.write("ZADD", mail.keys.active, now - data.draw(st.integers(0, 500)) if lapsed else now + 60_000, job)
        stalls = data.draw(st.integers(0, 3))
        if stalls:
            server.write("HSET", mail.keys.row(job), "stalled", stalls)
        spent = data.draw(st.integers(0, 3))
        if spent:
            server.write("HSET", mail.keys.exempt, job, spent)
        if data.draw(st.integers(0, 9)) == 0:
            server.write("DEL", mail.keys.row(job))
    if data.draw(st.booleans()):
        interruptions.mark_lost(ledger, ["mail"])
    begin = now - data.draw(st.integers(0, 600))
    policy = StalledPolicy(max_stalled=data.draw(st.integers(1, 3)), max_exempt=data.draw(st.integers(0, 3)), limit=3)
    with leading(server, ledger, "mail") as fence:
        window = holds.open_window(ledger, Window("mail", begin, begin + data.draw(st.integers(1, 400))))
        before = dump(server)
        wanted = predict_sweep(server, "mail", policy, ledger)
        assert dump(server) == before
        report = sweep(server, "mail", policy, ledger, fence)
        holds.close_windows(ledger, window.start_ms, "mail")
    for name in ("recovered", "exempted", "forced", "dead", "ghosts"):
        assert getattr(report, name) == getattr(wanted, name), name
    assert sorted(report.dead_jobs) == sorted(wanted.dead_jobs)


def test_a_prediction_sees_the_rewind_that_the_run_will_find(server: Server, ledger: Ledger, mail: Queue) -> None:
    swept(server, ledger, "mail")
    server.write("FLUSHALL")
    jobs = stall(mail, 5)
    before = dump(server)
    wanted = predict_sweep(server, "mail", StalledPolicy(), ledger)
    assert dump(server) == before
    assert (wanted.recovered, wanted.exempted, wanted.dead) == (5, 5, 0)
    report = swept(server, ledger, "mail")
    assert (report.recovered, report.exempted, report.dead) == (5, 5, 0)
    assert sorted(report.recovered_jobs) == sorted(wanted.recovered_jobs) == sorted(jobs)
