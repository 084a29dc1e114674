"""The stalled sweep as a pass: the protocol's semantics, and what the ledger keeps of it."""

from __future__ import annotations

import itertools

import pytest

from emq_ops.ledger import deaths, holds, runs
from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Event
from emq_ops.passes.observe.queue_state import observe
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import control, jobs, recover
from tests.support.keyspace import dump, load_live, of_emq
from tests.support.passing import add, kill_row, lapse, leading, row_of, stall, sweep, swept, take, until
from tests.support.valkey import Valkey

GROUP = "GRP0SSBKAh61tG"


def transition_only(server: Server, queue: str, max_stalled: int) -> None:
    """The plain transition until nothing is due."""
    while True:
        done = recover.sweep(Queue(server, queue), max_stalled)
        if not done.recovered and not done.dead:
            return


QUEUES = ("orders", "mail", "reports", "render")
USUAL = {(queue, *rest) for queue in QUEUES for rest in ((3, "count"), (1, "exempt"))} | {("mail", 1, "count")}
"""Each queue and way, the fewest and the most. `make soak` runs the others."""


@pytest.mark.parametrize(
    ("queue", "max_stalled", "restart"),
    [
        pytest.param(*case, marks=[] if case in USUAL else pytest.mark.soak)
        for case in itertools.product(QUEUES, (1, 2, 3), ("exempt", "count"))
    ],
)
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
        until(lambda: server.now_ms("mail") > observe(server, "mail").born_ms + 5, "a new life")
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
        assert death.contents().get(b"payload") == b"x"
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
    assert report.found_dead == 5  # an id without a row is what a completion beside us leaves: no death
    odd, completed = report.notes
    assert odd.startswith("2 members of the dead set are no job ids")
    assert completed.startswith("1 in the dead set were completed by others")
    causes = {d.job: (d.cause, d.killed_by) for d in deaths.iterate(ledger)}
    wanted = {**dict.fromkeys(errors, "error"), stalled: "stalled", parent: "flow"}
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
