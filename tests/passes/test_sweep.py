"""The stalled sweep as a pass: the protocol's semantics, exemptions, guards, and what the ledger keeps of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emq_ops.ledger import alerts, deaths, holds, runs
from emq_ops.ledger import interruptions as book
from emq_ops.ledger.holds import Hold, Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Event
from emq_ops.passes.policy import StalledPolicy
from emq_ops.passes.predict import predict_sweep
from emq_ops.passes.sight import look
from emq_ops.passes.sweep import sweep
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError, DamagedError, DeadlineError, FenceError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import control, jobs, recover
from emq_ops.protocol.transitions.claims import claim
from tests.support.keyspace import dump, load_live
from tests.support.passing import add, dead_of, kill_row, lapse, leading, row_of, stall, swept, take, until
from tests.support.valkey import Valkey

GROUP = "GRP0SSBKAh61tG"


def of_emq(keyspace: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without our own keys."""
    return {key: value for key, value in keyspace.items() if not key.startswith("emq-ops:")}


def transition_only(server: Server, queue: str, max_stalled: int) -> None:
    """The plain transition until nothing is due."""
    while True:
        done = recover.sweep(Queue(server, queue), max_stalled)
        if not done.recovered and not done.dead:
            return


@pytest.mark.parametrize("max_stalled", [1, 2, 3])
@pytest.mark.parametrize("queue", ["orders", "mail", "reports", "render"])
@pytest.mark.parametrize("restart", ["exempt", "count"])
def test_the_live_keyspace_ends_as_the_rules_say(
    server: Server, valkey: Valkey, ledger: Ledger, queue: str, max_stalled: int, restart: str
) -> None:
    load_live(server)
    lapsed = server.read("ZCOUNT", Queue(server, queue).keys.active, "-inf", server.now_ms(queue))
    before = dump(server)
    transition_only(server, queue, max_stalled)
    wanted = dump(server)
    with valkey.client() as admin:
        admin.flushall()
    load_live(server)
    report = swept(server, ledger, queue, max_stalled=max_stalled, restart=restart)
    found = of_emq(dump(server))
    # Deadlines were loaded twice, a moment apart.
    for keyspace in (wanted, found, before):
        for key in [key for key in keyspace if key.endswith((":active", ":schedule", ":repeat"))]:
            keyspace[key] = {"members": set(keyspace[key]["zset"])}
    assert found == wanted
    assert report.recovered + report.dead == lapsed
    changed = {key for key in found if found[key] != before.get(key)}
    assert all(f"{{{queue}}}" in key for key in changed)


def test_c16_250_lapsed_in_one_pass(server: Server, ledger: Ledger, mail: Queue) -> None:
    stalled = stall(mail, 250)
    report = swept(server, ledger, "mail", max_stalled=2)
    assert (report.recovered, report.dead, report.slices) == (250, 0, 3)
    assert sorted(report.recovered_jobs) == stalled
    assert server.read("ZCARD", mail.keys.pending) == 250
    assert server.read("EXISTS", mail.keys.swept) == 0  # all of it is in the ledger


def test_c16_unequal_leases(server: Server, ledger: Ledger, mail: Queue) -> None:
    """3 s and 300 s, scaled: the shorter one is recovered by the first pass after it lapsed, the other is not."""
    short, long = add(mail, 2)
    take(mail, 1, 30)
    take(mail, 1, 300_000)
    until(lambda: server.read("ZCOUNT", mail.keys.active, "-inf", server.now_ms("mail")) == 1, "the lapse")
    assert swept(server, ledger, "mail", max_stalled=2).recovered_jobs == [short]
    assert server.read("ZRANGE", mail.keys.active, 0, -1) == [long.encode()]


@pytest.mark.parametrize("restart", ["count", "exempt"])
def test_c18_a_count_survives_a_restart(durable: Valkey, ledger: Ledger, restart: str) -> None:
    with connect(durable.url) as server:
        mail = Queue(server, "mail")
        [job] = stall(mail)
        policy = {"max_stalled": 2, "restart": restart, "lease_ms": 1}
        assert swept(server, ledger, "mail", **policy).recovered_jobs == [job]
        assert row_of(mail, job)["stalled"] == "1"
        durable.restart()
        # Later than any lease of the earlier life: this stall is of this one.
        until(lambda: server.now_ms("mail") > look(server, "mail").born_ms + 5, "a new life")
        assert take(mail, 1) == [job]
        lapse(mail)
        report = swept(server, ledger, "mail", **policy)
        assert report.dead_jobs == [job]
        row = {"state": "dead", "attempts": "2", "payload": "x", "stalled": "2", "last_error": "stalled"}
        assert row_of(mail, job) == row
        places = [server.read("ZSCORE", key, job) for key in (mail.keys.pending, mail.keys.active, mail.keys.schedule)]
        assert places == [None, None, None]
        [death] = deaths.iterate(ledger)
        assert (death.cause, death.attempts, death.stalls, death.killed_by) == ("stalled", 2, 2, report.run)
        assert dict(death.contents().row)[b"payload"] == b"x"
        jobs.requeue(mail, job)
        assert "stalled" not in row_of(mail, job)


def test_deaths_with_row_and_logs_are_in_the_ledger_before_the_pass_ends(
    server: Server, ledger: Ledger, mail: Queue
) -> None:
    [job] = add(mail, payload=b"\x00\xff" * 600)
    for line in (b"first", b"\xfe second"):
        jobs.add_log(mail, job, line)
    take(mail)
    lapse(mail)
    events: list[Event] = []
    with leading(server, ledger, "mail") as fence:
        report = sweep(server, "mail", StalledPolicy(), ledger, fence, emit=events.append)
    [death] = deaths.iterate(ledger)
    contents = death.contents()
    assert contents.get(b"payload") == b"\x00\xff" * 600
    assert contents.logs == (b"first", b"\xfe second")
    assert (death.killed_by, death.found_by, death.evidence) == (report.run, report.run, "none")
    assert death.deadline_ms is not None
    assert death.deadline_ms <= death.first_seen_ms
    assert [e.name for e in events] == ["pass_started", "slice_swept", "died", "pass_ended"]
    run = runs.get(ledger, str(report.run))
    assert (run.status, run.counts, run.policy["max_stalled"]) == ("done", {"dead": 1}, 1)


def test_deaths_by_others_are_found_with_their_causes(server: Server, ledger: Ledger, mail: Queue) -> None:
    errors = kill_row(mail, 3)
    [stalled] = kill_row(mail, 1, last_error="stalled", stalled="1")
    [parent] = kill_row(mail, 1)
    server.write("HDEL", mail.keys.row(parent), "last_error")
    server.write("HSET", mail.keys.book(parent, "failed"), mint(), "boom")
    bare = mint()
    server.write("ZADD", mail.keys.dead, 0, bare, 0, "no id at all", 0, b"\xff\xfe")
    report = swept(server, ledger, "mail")
    assert report.found_dead == 6
    assert report.notes == ["2 members of the dead set are no job ids"]
    causes = {d.job: (d.cause, d.killed_by) for d in deaths.iterate(ledger)}
    wanted = {**dict.fromkeys(errors, "error"), stalled: "stalled", parent: "flow", bare: "unknown"}
    assert causes == {job: (cause, None) for job, cause in wanted.items()}
    again = swept(server, ledger, "mail")
    assert (again.found_dead, again.notes) == (0, [])


def test_a_row_with_a_megabyte_of_error(server: Server, ledger: Ledger, mail: Queue) -> None:
    jobs_ = kill_row(mail, 6, last_error="e" * 1_000_000)
    swept(server, ledger, "mail")
    assert {d.job: len(d.last_error or b"") for d in deaths.iterate(ledger)} == dict.fromkeys(jobs_, 1_000_000)


def test_a_job_that_was_revived_and_one_that_was_removed(server: Server, ledger: Ledger, mail: Queue) -> None:
    revived, removed, again = kill_row(mail, 3)
    swept(server, ledger, "mail")
    jobs.reprocess(mail, revived)
    jobs.remove(mail, removed)
    server.write("HSET", mail.keys.row(again), "attempts", 2)  # revived, claimed, dead again, all unseen
    server.write("HINCRBY", mail.keys.failed, "count", 1)
    assert swept(server, ledger, "mail").found_dead == 1
    ends = [(d.job, d.attempts, d.gone_how) for d in deaths.iterate(ledger)]
    assert sorted(ends) == sorted(
        [(revived, 1, "revived"), (removed, 1, "removed"), (again, 1, "revived"), (again, 2, None)]
    )


def test_ghosts(server: Server, ledger: Ledger, mail: Queue) -> None:
    """Counted as the protocol says; exempt ones leave active, and no row is made."""
    ghost = mint()
    server.write("ZADD", mail.keys.active, server.now_ms("mail") - 5, ghost)
    assert swept(server, ledger, "mail", max_stalled=2).recovered_jobs == [ghost]
    assert row_of(mail, ghost) == {"stalled": "1", "state": "pending"}
    server.write("FLUSHALL")
    swept(server, ledger, "mail")  # notices the rewind
    server.write("ZADD", mail.keys.active, server.now_ms("mail") - 5, ghost)
    now = server.now_ms("mail")
    holds.open_window(ledger, Window("mail", now - 1000, now + 60_000))
    report = swept(server, ledger, "mail")
    assert (report.ghosts, report.recovered) == (1, 0)
    assert server.read("EXISTS", mail.keys.active, mail.keys.row(ghost), mail.keys.pending) == 0


def test_lanes_and_the_ring(server: Server, ledger: Ledger, mail: Queue) -> None:
    mine = add(mail, 3, GROUP)
    control.limit_lane(mail, GROUP, 3)
    take(mail, 3, lane=True)
    lapse(mail)
    assert server.read("HGET", mail.keys.gactive, GROUP) == b"3"
    swept(server, ledger, "mail", max_stalled=2)
    assert server.read("EXISTS", mail.keys.gactive) == 0
    assert server.read("LRANGE", mail.keys.ring, 0, -1) == [GROUP.encode()]
    assert server.read("ZRANGE", mail.keys.lane(GROUP), 0, -1) == [job.encode() for job in mine]


# Exemption


def restarted(durable: Valkey, ledger: Ledger, count: int = 1, **policy: Any) -> tuple[Server, Queue, list[str]]:
    server = connect(durable.url)
    mail = Queue(server, "mail")
    swept(server, ledger, "mail", **policy)
    mine = add(mail, count)
    take(mail, count, 20)
    durable.restart()
    lapse(mail)
    return server, mail, mine


def test_a_poison_job_dies_after_at_most_max_exempt_exemptions(durable: Valkey, ledger: Ledger) -> None:
    """However often the server restarts; the count of exemptions is not spent by being forced."""
    with connect(durable.url) as server:
        mail = Queue(server, "mail")
        swept(server, ledger, "mail")
        [job] = add(mail)
        told: list[tuple[int, int, int]] = []
        while not dead_of(mail):
            assert len(told) < 20
            assert take(mail, 1) == [job]
            durable.restart()
            lapse(mail)
            report = swept(server, ledger, "mail", max_stalled=2, max_exempt=3)
            told.append((report.exempted, report.forced, report.dead))
        assert told == [(1, 0, 0)] * 3 + [(0, 1, 0), (0, 0, 1)]
        assert server.read("EXISTS", mail.keys.exempt) == 0
        [death] = deaths.iterate(ledger)
        assert (death.evidence, death.stalls) == ("max-exempt", 2)
        assert death.interruption is not None


def test_a_counted_stall_gives_the_exemptions_back(durable: Valkey, ledger: Ledger) -> None:
    server, mail, [job] = restarted(durable, ledger)
    with server:
        assert swept(server, ledger, "mail", max_stalled=9).exempted_jobs == [job]
        assert server.read("HGET", mail.keys.exempt, job) == b"1"
        take(mail)
        lapse(mail)
        report = swept(server, ledger, "mail", max_stalled=9)
        assert (report.exempted, report.recovered) == (0, 1)
        assert server.read("EXISTS", mail.keys.exempt) == 0


def test_exemptions_of_jobs_that_are_gone_are_forgotten(server: Server, ledger: Ledger, mail: Queue) -> None:
    [job] = stall(mail)
    server.write("HSET", mail.keys.exempt, mint(), 2, job, 1)
    swept(server, ledger, "mail", max_stalled=9, restart="count")
    assert server.read("EXISTS", mail.keys.exempt) == 0
    add(mail)
    server.write("HSET", mail.keys.exempt, job, 1)
    swept(server, ledger, "mail")
    assert server.read("HKEYS", mail.keys.exempt) == [job.encode()]


def test_what_an_interruption_did_is_told_of_it(durable: Valkey, ledger: Ledger) -> None:
    server, mail, mine = restarted(durable, ledger, 3)
    with server:
        # One comes back by itself: its keeper goes on.
        server.write("ZADD", mail.keys.active, server.now_ms("mail") + 60_000, mine[0])
        report = swept(server, ledger, "mail")
        # The census was made at first contact: it has the moved deadline.
        assert report.exempted_jobs == mine[1:]
        [cut] = book.listing(ledger)
        assert (cut.in_flight, cut.recovered, cut.exempted, cut.died) == (3, 2, 2, 0)


def test_count_at_threshold_1_kills_and_says_what_it_was(durable: Valkey, ledger: Ledger) -> None:
    server, mail, mine = restarted(durable, ledger, 3)
    with server:
        report = swept(server, ledger, "mail", restart="count")
        assert sorted(report.dead_jobs) == mine
        [cut] = book.listing(ledger)
        assert (cut.in_flight, cut.recovered, cut.exempted, cut.died) == (3, 0, 0, 3)
        assert {d.interruption for d in deaths.iterate(ledger)} == {cut.id}
        assert dead_of(mail) == mine


def test_a_native_claim_of_this_life_counts_against_the_census(durable: Valkey, ledger: Ledger) -> None:
    server, mail, mine = restarted(durable, ledger, 2)
    with server:
        server.write("HSET", mail.keys.row(mine[0]), "lease_epoch", server.run_id("mail"))
        server.write("HSET", mail.keys.row(mine[1]), "lease_epoch", "0" * 40)
        report = swept(server, ledger, "mail")
        assert report.dead_jobs == mine[:1]
        assert report.exempted_jobs == mine[1:]


def test_after_the_last_lease_of_the_earlier_life_nothing_is_judged_any_more(durable: Valkey, ledger: Ledger) -> None:
    server, _, _ = restarted(durable, ledger)
    with server:
        assert swept(server, ledger, "mail").interruption is not None
        assert swept(server, ledger, "mail").interruption is None


# Windows, holds, guards


def test_a_maintenance_window(server: Server, ledger: Ledger, mail: Queue) -> None:
    [job] = stall(mail)
    now = server.now_ms("mail")
    holds.open_window(ledger, Window("mail", now - 60_000, now + 60_000))
    holds.open_window(ledger, Window("orders", now - 60_000, now + 60_000))
    orders = Queue(server, "orders")
    stall(orders)
    assert swept(server, ledger, "mail").exempted_jobs == [job]
    assert swept(server, ledger, "orders").exempted == 1
    holds.close_windows(ledger, server.now_ms("mail"))
    assert take(mail) == [job]
    lapse(mail)
    assert swept(server, ledger, "mail").dead_jobs == [job]


def test_a_lease_that_lapsed_in_a_window_is_exempt_after_it_too(server: Server, ledger: Ledger, mail: Queue) -> None:
    now = server.now_ms("mail")
    window = holds.open_window(ledger, Window("m*", now, now + 60_000))
    [job] = stall(mail)
    until(lambda: server.now_ms("mail") > now + 5)
    holds.close_windows(ledger, server.now_ms("mail"), window.queues)
    report = swept(server, ledger, "mail")
    assert report.exempted_jobs == [job]


def test_windows_of_the_config(server: Server, ledger: Ledger, mail: Queue) -> None:
    [job] = stall(mail)
    now = server.now_ms("mail")
    with leading(server, ledger, "mail") as fence:
        windows = [Window("ma?l", now - 1000, now + 1000)]
        report = sweep(server, "mail", StalledPolicy(), ledger, fence, windows=windows)
    assert report.exempted_jobs == [job]


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


def test_the_time_runs_out(server: Server, ledger: Ledger, mail: Queue) -> None:
    """The pass ends in time to say how it ended; the next one goes on."""
    stall(mail, 5)
    at_start: list[float] = []
    with leading(server, ledger, "mail") as fence, deadline.deadline(4):

        def dawdle(event: Event) -> None:
            if event.name == "pass_started":
                at_start.append(deadline.remaining() or 0)
            if event.name == "slice_swept":  # a fifth of the time is kept for the end
                until(lambda: (deadline.remaining() or 0) < at_start[0] / 5, "most of the time")

        report = sweep(server, "mail", StalledPolicy(limit=2), ledger, fence, emit=dawdle)
    assert (report.more, report.dead, report.status) == (True, 2, "done")
    assert runs.get(ledger, str(report.run)).counts == {"dead": 2}
    assert swept(server, ledger, "mail").dead == 3


def test_a_failure_is_recorded_after_the_time_ran_out(server: Server, ledger: Ledger, mail: Queue) -> None:
    stall(mail, 1)

    def dawdle(event: Event) -> None:
        if event.name == "pass_started":
            until(lambda: deadline.remaining() == 0, "all of the time")

    with leading(server, ledger, "mail") as fence, pytest.raises(DeadlineError), deadline.deadline(2):
        sweep(server, "mail", StalledPolicy(), ledger, fence, emit=dawdle)
    [run] = runs.latest(ledger)
    assert run.status == "failed"
    assert "time" in str(run.error)


# Bad input


@pytest.mark.parametrize(
    "harm",
    [
        lambda mail, job: ("HSET", mail.keys.row(job), "stalled", "many"),
        lambda mail, job: ("ZADD", mail.keys.active, 1733, job),  # seconds, or worse
        lambda mail, job: ("ZADD", mail.keys.active, mail.server.now_ms("mail") - 9, "no id"),
        lambda mail, job: ("SET", mail.keys.pending, "no zset"),
        lambda mail, job: ("SET", mail.keys.exempt, "no hash"),
        lambda mail, job: ("SET", mail.keys.failed, "no hash"),
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
        book.mark_lost(ledger, ["mail"])
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
