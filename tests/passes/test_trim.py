"""The dead trim: exactly the right ones go, whole; everybody else stays."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from emq_archive.dead_digest import dead_digest
from emq_ops.ledger import alerts, deaths, holds, runs
from emq_ops.ledger.holds import Hold
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import deaths as deaths_table
from emq_ops.ledger.victims import noted
from emq_ops.passes.events import Event
from emq_ops.passes.policy import DeadPolicy
from emq_ops.passes.predict import predict_trim
from emq_ops.passes.report import TrimReport
from emq_ops.passes.trim import ProtectedError, trim
from emq_ops.protocol.errors import BadInputError, DamagedError, EmqError, FenceError
from emq_ops.protocol.ids import min_id, mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import jobs
from tests.support.keyspace import dump, load_live
from tests.support.passing import dead_of, kill_row, leading, swept
from tests.support.valkey import Valkey


def trimmed(server: Server, ledger: Ledger, queue: str = "mail", **more: Any) -> TrimReport:
    """One trim under a lease of its own."""
    options = {name: more.pop(name) for name in ("archiver", "only", "emit", "trigger") if name in more}
    with leading(server, ledger, queue) as fence:
        return trim(server, queue, DeadPolicy(**more), ledger, fence, **options)


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
            while not over.is_set():
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


def test_held_jobs_and_flow_children_are_skipped_and_named(server: Server, ledger: Ledger, mail: Queue) -> None:
    held, child, parent, damaged, logs, plain = kill_row(mail, 6)
    server.write("SET", mail.keys.book(held, "lock"), "w", "PX", 60_000)
    server.write("HSET", mail.keys.row(child), "parent", mint())
    server.write("SET", mail.keys.book(parent, "dependencies"), 2)
    server.write("HSET", mail.keys.book(parent, "failed"), mint(), "boom")
    server.write("DEL", mail.keys.row(damaged))
    server.write("SET", mail.keys.row(damaged), "no hash")
    server.write("SET", mail.keys.book(logs, "logs"), "no list")
    report = trimmed(server, ledger, keep=0)
    assert report.removed_jobs == [logs, plain] or report.removed == 2
    reasons = {skipped.job: skipped.reason.split(":")[0] for skipped in report.skipped}
    assert reasons == {
        held: "held",
        child: "flow child",
        parent: "flow parent with open children",
        damaged: "its row, logs or books are of another type",
    }
    assert dead_of(mail) == sorted([held, child, parent, damaged])
    with ledger.read() as connection:
        assert noted(connection, "mail") is None


def test_members_without_rows_and_members_that_are_no_ids(server: Server, ledger: Ledger, mail: Queue) -> None:
    bare = [mint() for _ in range(3)]
    server.write("ZADD", mail.keys.dead, *[x for job in [*bare, "garbage", b"\xff\x00"] for x in (0, job)])
    report = trimmed(server, ledger, keep=1)
    assert (report.removed, report.malformed, report.left) == (2, 2, 3)
    assert server.read("ZSCORE", mail.keys.dead, "garbage") is not None
    assert server.read("ZSCORE", mail.keys.dead, bare[2]) is not None


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
    assert predict_trim(server, "mail", DeadPolicy(max_age_ms=1000), ledger).victims == []
    report = trimmed(server, ledger, max_age_ms=1000)
    assert (report.removed, report.found_dead) == (0, 2)
    [seen] = {death.first_seen_ms for death in deaths.iterate(ledger, only_open=True)}
    with ledger.write() as connection:
        connection.execute(update(deaths_table).values(first_seen_ms=seen - 2000))
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


# The archive


@dataclass
class Archived:
    job: str
    names: tuple[bytes, ...]
    digest: str


@dataclass
class Receipt:
    proven: dict[str, Archived] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    folded: int = 0


class Shelf:
    """An archive in memory: what the trim asks of one, and no more."""

    def __init__(self, server: Server, queue: str, refuse: Sequence[str] = ()) -> None:
        self.q, self.refuse = Queue(server, queue), refuse
        self.rows: dict[str, list[bytes]] = {}
        self.facts: dict[str, Sequence[tuple[bytes, bytes]]] = {}

    def archive(
        self, jobs: Sequence[str], facts: Mapping[str, Sequence[tuple[bytes, bytes]]], *, now_ms: int
    ) -> Receipt:
        receipt = Receipt()
        for job in jobs:
            if job in self.refuse:
                receipt.failed[job] = "refused"
                continue
            row = self.q.server.read("HGETALL", self.q.keys.row(job))
            logs = self.q.server.read("LRANGE", self.q.keys.book(job, "logs"), 0, -1)
            self.rows[job], self.facts[job] = row, facts[job]
            receipt.proven[job] = Archived(job, tuple(row[::2]), dead_digest(row[1::2], logs))
            receipt.folded += 1
        return receipt


def test_what_is_archived_goes_and_what_is_not_stays(server: Server, ledger: Ledger, mail: Queue) -> None:
    dead = kill_row(mail, 4)
    jobs.add_log(mail, dead[0], b"\x00 log")
    shelf = Shelf(server, "mail", refuse=[dead[1]])
    report = trimmed(server, ledger, keep=1, archive=True, archiver=shelf)
    assert report.removed_jobs == [dead[0], dead[2]]
    assert [(s.job, s.reason) for s in report.skipped] == [(dead[1], "not archived: refused")]
    assert report.archived == 2
    facts = dict(shelf.facts[dead[0]])
    assert facts[b"cause"] == b"error"
    assert facts[b"seen_at"].isdigit()


@pytest.mark.parametrize(
    "change",
    [
        ("HSET", "row", "payload", "q"),
        ("HSET", "row", "progress", "5"),
        ("HDEL", "row", "payload"),
        ("RPUSH", "logs", "one more"),
        ("HSET", "row", "last_error", "bo\0om"),
    ],
)
def test_a_job_that_is_not_what_was_archived_survives(
    server: Server, ledger: Ledger, mail: Queue, change: tuple[str, ...]
) -> None:
    [job] = kill_row(mail, 1)
    jobs.add_log(mail, job, b"line")

    class Meddled(Shelf):
        def archive(self, jobs: Any, facts: Any, *, now_ms: int) -> Receipt:
            receipt = super().archive(jobs, facts, now_ms=now_ms)
            key = self.q.keys.row(job) if change[1] == "row" else self.q.keys.book(job, "logs")
            server.write(change[0], key, *change[2:])
            return receipt

    report = trimmed(server, ledger, keep=0, archive=True, archiver=Meddled(server, "mail"))
    assert (report.removed, report.survived) == (0, 1)
    assert dead_of(mail) == [job]
    assert trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail")).removed == 1


def test_an_archive_that_fails_trims_nothing(server: Server, ledger: Ledger, mail: Queue) -> None:
    dead = kill_row(mail, 3)

    class Broken(Shelf):
        def archive(self, jobs: Any, facts: Any, *, now_ms: int) -> Receipt:
            raise EmqError("the store is gone")

    with pytest.raises(EmqError, match="the store is gone"):
        trimmed(server, ledger, keep=0, archive=True, archiver=Broken(server, "mail"))
    assert dead_of(mail) == dead
    assert [run.status for run in runs.latest(ledger)] == ["failed"]
    assert trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail")).removed == 3


def test_with_an_archive_each_page_is_archived_before_it_goes(
    server: Server, ledger: Ledger, mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emq_ops.passes.trim.ARCHIVE_PAGE", 7)
    dead = kill_row(mail, 40)

    class Watching(Shelf):
        def archive(self, jobs: Any, facts: Any, *, now_ms: int) -> Receipt:
            receipt = super().archive(jobs, facts, now_ms=now_ms)
            assert set(jobs) <= set(dead_of(mail))
            return receipt

    shelf = Watching(server, "mail", refuse=[dead[9]])
    report = trimmed(server, ledger, keep=1, archive=True, archiver=shelf, slice=3)
    assert report.removed_jobs == [job for job in dead[:39] if job != dead[9]]
    assert (report.archived, report.left, [s.job for s in report.skipped]) == (38, 2, [dead[9]])
    assert list(shelf.rows) == report.removed_jobs


def test_an_archive_that_fails_on_its_way_keeps_what_is_left(
    server: Server, ledger: Ledger, mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emq_ops.passes.trim.ARCHIVE_PAGE", 5)
    dead = kill_row(mail, 20)

    class Failing(Shelf):
        def archive(self, jobs: Any, facts: Any, *, now_ms: int) -> Receipt:
            if dead[10] in jobs:
                raise EmqError("the store is gone")
            return super().archive(jobs, facts, now_ms=now_ms)

    with pytest.raises(EmqError, match="the store is gone"):
        trimmed(server, ledger, keep=0, archive=True, archiver=Failing(server, "mail"), slice=2)
    assert dead_of(mail) == dead[10:]
    [run] = runs.latest(ledger)
    assert (run.status, run.counts["removed"]) == ("failed", 10)


def test_a_lease_that_is_lost_while_the_next_page_is_archived_ends_the_trim(
    server: Server, ledger: Ledger, mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emq_ops.passes.trim.ARCHIVE_PAGE", 5)
    dead = kill_row(mail, 20)

    class Losing(Shelf):
        def archive(self, jobs: Any, facts: Any, *, now_ms: int) -> Receipt:
            if dead[5] in jobs:
                server.write("DEL", mail.keys.lease)
            return super().archive(jobs, facts, now_ms=now_ms)

    with pytest.raises(FenceError):
        trimmed(server, ledger, keep=0, archive=True, archiver=Losing(server, "mail"), slice=2)
    assert set(dead[5:]) <= set(dead_of(mail))  # of the first five some may have gone before
    assert [run.status for run in runs.latest(ledger)] == ["failed"]


def test_rows_of_many_shapes_and_names_in_any_order(server: Server, ledger: Ledger, mail: Queue) -> None:
    dead = kill_row(mail, 40)
    for number, job in enumerate(dead):
        for extra in range(number % 5):
            server.write("HSET", mail.keys.row(job), f"Zeta{extra}", number, f"äpfel{extra}", b"\xff\x00")
    assert trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail"), slice=15).removed == 40


def test_a_row_of_very_many_fields_is_compared_to_the_last(server: Server, ledger: Ledger, mail: Queue) -> None:
    wide, same = kill_row(mail, 2)
    for job in (wide, same):
        server.write("HSET", mail.keys.row(job), *[text for n in range(1200) for text in (f"field {n:04}", f"{n}")])

    class Meddled(Shelf):
        def archive(self, jobs: Any, facts: Any, *, now_ms: int) -> Receipt:
            receipt = super().archive(jobs, facts, now_ms=now_ms)
            server.write("HSET", mail.keys.row(wide), receipt.proven[wide].names[-1], "other")
            return receipt

    report = trimmed(server, ledger, keep=0, archive=True, archiver=Meddled(server, "mail"))
    assert (report.removed_jobs, report.survived) == ([same], 1)
    assert dead_of(mail) == [wide]


# Guards


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


def test_a_prediction_comes_true(server: Server, ledger: Ledger, mail: Queue) -> None:
    dead = kill_row(mail, 30)
    swept(server, ledger, "mail")
    dead += kill_row(mail, 10)  # not in the ledger yet
    server.write("SET", mail.keys.book(dead[2], "lock"), "w", "PX", 60_000)
    before = dump(server)
    policy = DeadPolicy(keep=12)
    found = predict_trim(server, "mail", policy, ledger)
    assert dump(server) == before
    assert (found.report.status, found.report.removed, found.report.victims) == ("dry", 0, 27)
    report = trimmed(server, ledger, keep=12)
    assert report.removed_jobs == found.report.victim_jobs == [victim.job for victim in found.victims]
    assert [s.job for s in report.skipped] == [s.job for s in found.report.skipped] == [dead[2]]
    assert report.left == found.report.left == 13


def test_a_prediction_without_a_ledger(server: Server, mail: Queue) -> None:
    dead = kill_row(mail, 5)
    found = predict_trim(server, "mail", DeadPolicy(keep=2), None)
    assert found.report.victim_jobs == dead[:3]


def test_the_digest_is_made_alike_on_both_sides(server: Server, ledger: Ledger, mail: Queue) -> None:
    values, logs = [b"1", b"", b"x" * 300], [b"", b"*", b"3:abc"]
    said = hashlib.sha1(b"1:10:300:" + b"x" * 300 + b"*0:1:*5:3:abc").hexdigest()
    assert dead_digest(values, logs) == said
