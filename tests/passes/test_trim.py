"""The dead trim: exactly the right ones go, whole; everybody else stays."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from emq_ops.ledger import deaths, runs, schema
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.victims import noted
from emq_ops.passes.events import Event
from emq_ops.passes.trim.predict import predict_trim
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.protocol.errors import UnreachableError
from emq_ops.protocol.ids import min_id, mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import jobs
from tests.support.keyspace import dump, load_live
from tests.support.passing import dead_of, kill_row, leading, sweep, swept, trim, trimmed
from tests.support.valkey import Valkey


@pytest.mark.parametrize("age_by", ["seen", "minted"])
@pytest.mark.parametrize("queue", ["orders", "mail", "reports"])
def test_the_live_keyspace_trimmed_to_ten(server: Server, ledger: Ledger, queue: str, age_by: str) -> None:
    """Seen all at once, their age is the same, and mint order decides: the ten newest stay, nothing else changes."""
    load_live(server)
    before = dump(server)
    q = Queue(server, queue)
    dead = dead_of(q)
    report = trimmed(server, ledger, queue, keep=10, age_by=age_by)
    gone = dead[: max(0, len(dead) - 10)]
    assert dead_of(q) == dead[len(gone) :]
    assert (report.removed, report.left, report.skipped) == (len(gone), min(10, len(dead)), [])
    after = {key: value for key, value in dump(server).items() if not key.startswith("emq-ops:")}
    wanted = {key: value for key, value in before.items() if not any(f":job:{job}" in key for job in gone)}
    wanted[q.keys.dead] = {"zset": {job.encode(): 0.0 for job in dead[len(gone) :]}}
    assert after == wanted


def test_c16_28_000_dead_keep_8_000_and_others_are_served_meanwhile(
    server: Server, valkey: Valkey, ledger: Ledger, mail: Queue
) -> None:
    """How long a slice takes is for the benchmark; here: the work is cut into many, and others come between."""
    dead = sorted(kill_row(mail, 28_000))
    over, pings = threading.Event(), [0]

    def ping() -> None:
        with valkey.client() as other:
            while not over.wait(0.001):
                other.ping()
                pings[0] += 1

    other = threading.Thread(target=ping)
    other.start()
    slices: list[Event] = []
    report = trimmed(server, ledger, keep=8000, emit=slices.append)
    over.set()
    other.join()
    assert (report.removed, report.left, report.found_dead) == (20_000, 8000, 28_000)
    assert dead_of(mail) == dead[20_000:]
    assert len([event for event in slices if event.name == "slice_trimmed"]) == 80
    assert pings[0] > 80
    assert server.read("DBSIZE") == 8000 + 3  # rows, dead set, counter, lease
    with ledger.read() as connection:
        assert deaths.count_open(connection, "mail") == 8000
        assert noted(connection, "mail") is None


def test_everything_of_a_job_goes_and_nothing_is_orphaned(server: Server, ledger: Ledger, mail: Queue) -> None:
    job, other = kill_row(mail, 2)
    for id_ in (job, other):
        jobs.add_log(mail, id_, b"a line")
        server.write("SET", mail.keys.book(id_, "dependencies"), 1)
        for book in ("processed", "failed", "unsuccessful"):
            server.write("HSET", mail.keys.book(id_, book), mint(), "r")
    server.write("HSET", mail.keys.exempt, job, 2, other, 1)
    assert trimmed(server, ledger, keep=1).removed_jobs == [job]
    left = [key for key in dump(server) if job in key]
    assert left == []
    assert len([key for key in dump(server) if other in key]) == 6
    assert server.read("HKEYS", mail.keys.exempt) == [other.encode()]


def test_held_jobs_and_flow_parents_are_skipped_and_named(server: Server, ledger: Ledger, mail: Queue) -> None:
    held, child, parent, damaged, logs, _plain = kill_row(mail, 6)
    server.write("SET", mail.keys.book(held, "lock"), "w", "PX", 60_000)
    server.write("HSET", mail.keys.row(child), "parent", mint())
    server.write("SET", mail.keys.book(parent, "dependencies"), 2)
    server.write("HSET", mail.keys.book(parent, "failed"), mint(), "boom")
    server.write("DEL", mail.keys.row(damaged))
    server.write("SET", mail.keys.row(damaged), "no hash")
    server.write("SET", mail.keys.book(logs, "logs"), "no list")
    report = trimmed(server, ledger, keep=0)
    assert report.removed == 3
    reasons = {skipped.job: skipped.reason.split(":")[0] for skipped in report.skipped}
    assert reasons == {
        held: "held",
        parent: "flow parent with open children",
        damaged: "its row, logs or books, or its parent's, are of another type",
    }
    assert dead_of(mail) == sorted([held, parent, damaged])
    with ledger.read() as connection:
        assert noted(connection, "mail") is None


def test_members_without_rows_and_members_that_are_no_ids(server: Server, ledger: Ledger, mail: Queue) -> None:
    bare = [mint() for _ in range(3)]
    server.write("ZADD", mail.keys.dead, *[x for job in [*bare, "garbage", b"\xff\x00"] for x in (0, job)])
    report = trimmed(server, ledger, keep=1)
    assert (report.removed, report.malformed, report.left) == (0, 2, 5)  # without a row it is no dead job; see doctor
    for member in (*bare, "garbage", b"\xff\x00"):
        assert server.read("ZSCORE", mail.keys.dead, member) is not None


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_for_any_dead_set_the_survivors_are_exactly_the_right_ones(
    server: Server, valkey: Valkey, ledger: Ledger, data: st.DataObject
) -> None:
    queue = f"q{mint()}"  # a queue of its own, so that the ledger's ages are this example's
    q = Queue(server, queue)
    now = server.now_ms(queue)
    ages: dict[str, int] = {}
    groups = data.draw(st.lists(st.integers(0, 6), max_size=5))
    for size in groups:
        ages.update(dict.fromkeys(kill_row(q, size), data.draw(st.integers(1, 1000))))
    with ledger.write() as connection:
        seen = [deaths.Death(job, 1, 0, first_seen_ms=now - 1000 * age, cause="error") for job, age in ages.items()]
        deaths.record(connection, queue, seen)
    keep = data.draw(st.none() | st.integers(0, 12))
    max_age = data.draw((st.none() if keep is not None else st.nothing()) | st.integers(1, 1000))
    report = trimmed(server, ledger, queue, keep=keep, max_age_ms=None if max_age is None else max_age * 1000, slice=7)
    newest = sorted(ages, key=lambda job: (-ages[job], job), reverse=True)
    wanted = set(newest if keep is None else newest[:keep])
    if max_age is not None:
        # A second's worth of slack lies between the ages drawn and the moment of the trim.
        wanted = {job for job in wanted if ages[job] < max_age}
    assert set(dead_of(q)) == wanted
    assert report.removed == len(ages) - len(wanted)
    assert all(server.read("EXISTS", q.keys.row(job)) == (job in wanted) for job in ages)


def test_a_death_that_nobody_recorded_is_first_seen_now(server: Server, ledger: Ledger, mail: Queue) -> None:
    """However long ago it was: its age counts from the pass that saw it first, which records it."""
    old = kill_row(mail, 2)
    assert predict_trim(server, "mail", DeadPolicy(max_age_ms=1000), ledger).jobs == ()
    report = trimmed(server, ledger, max_age_ms=1000)
    assert (report.removed, report.found_dead) == (0, 2)
    [seen] = {death.first_seen_ms for death in deaths.iterate(ledger, only_open=True)}
    with ledger.write() as connection:
        connection.execute(update(schema.deaths).values(first_seen_ms=seen - 2000))
    young = kill_row(mail, 1)
    report = trimmed(server, ledger, max_age_ms=1000)
    assert (report.removed_jobs, report.found_dead) == (old, 1)
    assert dead_of(mail) == young


def test_age_by_mint(server: Server, ledger: Ledger, mail: Queue) -> None:
    now = server.now_ms("mail")
    old, older = min_id("JOB", now - 5000), min_id("JOB", now - 50_000)
    fresh = mint()
    for job in (old, older, fresh):
        server.write("HSET", mail.keys.row(job), "state", "dead", "attempts", 1)
        server.write("ZADD", mail.keys.dead, 0, job)
    assert trimmed(server, ledger, max_age_ms=20_000, age_by="minted").removed_jobs == [older]
    assert trimmed(server, ledger, max_age_ms=20_000).removed == 0  # seen dead just now


# Between listing and delete


Meddle = Callable[[Queue, str], object]


def requeue(mail: Queue, job: str) -> None:
    jobs.reprocess(mail, job)


def dead_again(mail: Queue, job: str) -> None:
    mail.server.write("HINCRBY", mail.keys.row(job), "attempts", 1)


def stalled_again(mail: Queue, job: str) -> None:
    mail.server.write("HSET", mail.keys.row(job), "stalled", 1)


def test_a_sweep_beside_a_trim_does_not_take_its_work_for_others(server: Server, ledger: Ledger, mail: Queue) -> None:
    """The sweep looks at the dead set while the trim is at work, and then the trim can't say what it did."""
    kill_row(mail, 6)
    trims: list[str] = []

    def interfere(event: Event) -> None:
        if event.name == "slice_trimmed":
            trims.append(event.run)
            if len(trims) == 1:  # the first four are gone
                sweep(server, "mail", StalledPolicy(), ledger, fence)
            elif len(trims) == 5:  # and so are the others
                raise UnreachableError("the ledger is away")

    with leading(server, ledger, "mail") as fence:
        with pytest.raises(UnreachableError):
            trim(server, "mail", DeadPolicy(keep=0, slice=1), ledger, fence, emit=interfere)
        trim(server, "mail", DeadPolicy(keep=0), ledger, fence)
    assert {(d.gone_how, d.gone_by) for d in deaths.iterate(ledger)} == {("trimmed", trims[0])}
    assert runs.get(ledger, trims[0]).counts["removed"] == 6
    with ledger.read() as connection:
        assert noted(connection, "mail") is None


def removed_by_others(mail: Queue, job: str) -> None:
    jobs.remove(mail, job)


@pytest.mark.parametrize("meddle", [requeue, dead_again, stalled_again, removed_by_others])
def test_a_job_that_changed_between_listing_and_delete_survives(
    server: Server, ledger: Ledger, mail: Queue, meddle: Meddle
) -> None:
    dead = kill_row(mail, 20)
    late = dead[15]

    def interfere(event: Event) -> None:
        if event.name == "slice_trimmed" and late in dead_of(mail):
            meddle(mail, late)

    report = trimmed(server, ledger, keep=0, slice=1, emit=interfere)
    assert (report.removed, report.survived) == (19, 1)
    gone = meddle is removed_by_others
    assert server.read("EXISTS", mail.keys.row(late)) == (0 if gone else 1)
    with ledger.read() as connection:
        assert noted(connection, "mail") is None
    swept(server, ledger, "mail")
    ends = {d.job: d.gone_how for d in deaths.iterate(ledger) if d.job == late}
    assert ends in ({late: None}, {late: "revived"}, {late: "removed"})
    assert {d.gone_how for d in deaths.iterate(ledger) if d.job != late} == {"trimmed"}


def test_a_saved_plan_bounds_the_pass(server: Server, ledger: Ledger, mail: Queue) -> None:
    dead = kill_row(mail, 6)
    assert trimmed(server, ledger, keep=1, only={dead[0], dead[3], dead[5]}).removed_jobs == [dead[0], dead[3]]
    assert dead_of(mail) == [dead[1], dead[2], dead[4], dead[5]]
    # Those that the plan did not list are still dead to the ledger, and the next pass is free to take them.
    assert {d.job for d in deaths.iterate(ledger) if d.gone_how is not None} == {dead[0], dead[3]}
    assert trimmed(server, ledger, keep=1).removed_jobs == [dead[1], dead[2], dead[4]]
    assert dead_of(mail) == [dead[5]]
