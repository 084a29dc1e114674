"""What the ledger keeps: runs, deaths, interruptions, holds, windows, requests, alerts; and what it forgets."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.database.errors import DatabaseLockedError
from emq_ops.ledger import alerts, deaths, holds, interruptions, requests, retention, runs, snapshot, victims
from emq_ops.ledger.deaths import Death
from emq_ops.ledger.holds import Hold, Window
from emq_ops.ledger.interruptions import Counted, Interruption
from emq_ops.ledger.ledger import PROFILE, Ledger, host_ms, open_ledger
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import mint

NOW = 1_800_000_000_000


def death(job: str, **more: object) -> Death:
    return dataclasses.replace(Death(job, attempts=1, stalls=0, first_seen_ms=NOW), **more)


def test_a_slice_is_added_to_its_run_once(ledger: Ledger) -> None:
    run = runs.start(ledger, "sweep", "mail", holder="me", token=3, policy={"max_stalled": 2})
    with ledger.write() as connection:
        assert runs.add_slice(connection, run, 1, {"dead": 2})
        assert runs.add_slice(connection, run, 2, {"dead": 1, "recovered": 5})
        assert not runs.add_slice(connection, run, 2, {"dead": 1, "recovered": 5})
        assert not runs.add_slice(connection, run, 1, {"dead": 2})
    found = runs.get(ledger, run)
    assert (found.slices, found.counts, found.policy) == (2, {"dead": 3, "recovered": 5}, {"max_stalled": 2})
    assert found.status == "running"


def test_a_run_that_ends_in_a_fault_has_what_its_slices_added_up(ledger: Ledger) -> None:
    """The reply to the last slice's commit was lost: the pass knows of less."""
    error, ended = "no answer from 127.0.0.1:5432", []
    for counts, slices in [(None, 0), (None, 1), ({"dead": 2, "found_dead": 1}, 2)]:
        ended.append(runs.start(ledger, "sweep", "mail", holder="me", token=3))
        with ledger.write() as connection:
            for number in range(slices):
                assert runs.add_slice(connection, ended[-1], number + 1, {"dead": 2})
            runs.finish(connection, ended[-1], runs.FAILED, counts=counts, error=error)
            runs.join_repeats(connection, ended[-1])
    assert [runs.get(ledger, run).counts for run in ended] == [{}, {"dead": 2}, {"dead": 4, "found_dead": 1}]


@pytest.mark.parametrize("seen_ms", [NOW, NOW - 100], ids=["in time", "by one who began to look before"])
def test_a_death_that_was_seen_and_ended_before_its_pass_could_record_it_is_one_death(
    ledger: Ledger, seen_ms: int
) -> None:
    killed = death("J1", killed_by="RUN1", deadline_ms=NOW - 5, cause="stalled", first_seen_ms=NOW - 3)
    again = death("J1", killed_by="RUN2", deadline_ms=NOW + 50, cause="stalled", first_seen_ms=NOW + 60)
    with ledger.write() as connection:
        deaths.record(connection, "mail", [death("J1", first_seen_ms=seen_ms)])  # a trim finds it, and takes it
        deaths.close(connection, "mail", ["J1"], deaths.TRIMMED, NOW + 1, "RUN0")
        assert deaths.record(connection, "mail", [killed]) == 0  # the sweep's ledger was away until now
        assert deaths.record(connection, "mail", [again]) == 1  # brought back, and killed once more
    first, second = sorted(deaths.iterate(ledger), key=lambda found: found.id)
    assert (first.killed_by, first.deadline_ms, first.gone_how) == ("RUN1", NOW - 5, deaths.TRIMMED)
    assert (second.killed_by, second.gone_ms) == ("RUN2", None)


def test_a_run_of_an_older_lease_is_marked_interrupted(ledger: Ledger) -> None:
    old = runs.start(ledger, "sweep", "mail", holder="a", token=1)
    other = runs.start(ledger, "sweep", "orders", holder="a", token=1)
    new = runs.start(ledger, "sweep", "mail", holder="b", token=2)
    states = {run.id: run.status for run in runs.latest(ledger)}
    assert states == {old: "interrupted", other: "running", new: "running"}
    assert [run.id for run in runs.latest(ledger, queue="mail", limit=1)] == [new]


def test_a_run_whose_end_could_not_be_recorded_is_marked_by_the_next_under_the_same_lease(ledger: Ledger) -> None:
    lost = runs.start(ledger, "sweep", "mail", holder="a", token=3)
    trim = runs.start(ledger, "trim", "mail", holder="a", token=3)
    following = runs.start(ledger, "sweep", "mail", holder="a", token=3)
    states = {run.id: run.status for run in runs.latest(ledger)}
    assert states == {lost: "interrupted", trim: "running", following: "running"}


def test_runs_on_their_way_are_kept_while_the_ledger_refuses_and_are_there_once(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/s.db", dataclasses.replace(PROFILE, busy=0.001)) as ledger:
        outbox, idle = runs.PendingRuns(ledger), runs.IdleBook(ledger, "me")
        rows = [runs.new("archive", "mail", holder="me").over("done", {"folded": n}) for n in (1, 2, 3)]
        idle.note("sweep", 4)
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for row in rows[:2]:
            with pytest.raises(DatabaseLockedError):
                outbox.put(row)
        with pytest.raises(DatabaseLockedError):
            idle.flush()
        other.execute("ROLLBACK")
        outbox.put(rows[2])
        # A commit whose answer was lost is there, and comes again.
        outbox.put(rows[2])
        idle.note("sweep", 5)
        idle.flush()
        found = runs.latest(ledger)
        assert sorted(run.counts["folded"] for run in found if run.kind == "archive") == [1, 2, 3]
        assert sorted(run.counts["sweep"] for run in found if run.kind == "idle") == [4, 5]
        assert {run.id for run in found} >= {row.id for row in rows}


def test_a_run_that_is_not_there(ledger: Ledger) -> None:
    with pytest.raises(BadInputError, match="no run RUN"):
        runs.get(ledger, mint("RUN"))


def test_idle_passes_share_one_row(ledger: Ledger) -> None:
    book = runs.IdleBook(ledger, "me")
    for _ in range(1000):
        book.note("sweep")
    book.note("trim", 5)
    assert runs.latest(ledger) == []
    book.flush()
    book.flush()
    [row] = runs.latest(ledger)
    assert (row.status, row.counts) == ("idle", {"sweep": 1000, "trim": 5})


def test_a_death_is_recorded_once_and_explained_later(ledger: Ledger) -> None:
    job = mint()
    with ledger.write() as connection:
        assert deaths.record(connection, "mail", [death(job, found_by=mint("RUN"))]) == 1
    killer = mint("RUN")
    with ledger.write() as connection:
        assert deaths.record(connection, "mail", [death(job, killed_by=killer, cause="stalled", deadline_ms=NOW)]) == 0
        assert deaths.record(connection, "mail", [death(job, killed_by=mint("RUN"), cause="error")]) == 0
    [found] = deaths.iterate(ledger)
    assert (found.killed_by, found.cause, found.deadline_ms) == (killer, "stalled", NOW)


def test_a_job_that_dies_again_has_a_second_death(ledger: Ledger) -> None:
    job = mint()
    for attempts in (1, 2):
        with ledger.write() as connection:
            deaths.record(connection, "mail", [death(job, attempts=attempts, first_seen_ms=NOW + attempts)])
    first, second = deaths.iterate(ledger, job=job)
    assert (first.gone_how, first.gone_ms) == ("revived", NOW + 2)
    assert (second.attempts, second.gone_ms) == (2, None)
    with ledger.read() as connection:
        assert deaths.count_open(connection, "mail") == 1


def test_the_same_job_id_in_two_queues(ledger: Ledger) -> None:
    job = mint()
    with ledger.write() as connection:
        deaths.record(connection, "mail", [death(job)])
        deaths.record(connection, "orders", [death(job)])
        deaths.close(connection, "mail", [job], deaths.TRIMMED, NOW, "RUN00000000001")
    assert {d.queue: d.gone_how for d in deaths.iterate(ledger)} == {"mail": "trimmed", "orders": None}


def test_iterating_pages_and_filters(ledger: Ledger) -> None:
    jobs = [mint() for _ in range(25)]
    with ledger.write() as connection:
        seen = [death(job, first_seen_ms=NOW + i, cause="error" if i % 2 else "stalled") for i, job in enumerate(jobs)]
        deaths.record(connection, "mail", seen)
    assert [d.job for d in deaths.iterate(ledger, page=7)] == jobs
    assert [d.job for d in deaths.iterate(ledger, job=jobs[3], page=5)] == [jobs[3]]
    assert list(deaths.iterate(ledger, queue="other", page=5)) == []


@pytest.mark.parametrize(
    ("keep", "before", "gone"),
    [(None, None, 0), (3, None, 7), (10, None, 0), (0, None, 10), (None, NOW + 4, 4), (8, NOW + 4, 4), (3, NOW + 4, 7)],
)
def test_victims_are_the_oldest(ledger: Ledger, keep: int | None, before: int | None, gone: int) -> None:
    jobs = [mint() for _ in range(10)]
    aged = list(reversed(jobs))  # the last minted died first
    with ledger.write() as connection:
        deaths.record(connection, "mail", [death(job, first_seen_ms=NOW + i) for i, job in enumerate(aged)])
        found = victims.find_victims(connection, "mail", keep=keep, seen_before_ms=before)
        assert [victim.job for victim in found] == aged[:gone]
        by_mint = victims.find_victims(connection, "mail", keep=keep, minted_before=jobs[2], by_mint=True)
        assert [victim.job for victim in by_mint] == jobs[: max(2, 0 if keep is None else 10 - keep)]


def test_ids_sort_by_byte_whatever_the_locale(ledger: Ledger) -> None:
    jobs = ["JOB0STJaaaaaaa", "JOB0STJAAAAAAA", "JOB0STJBBBBBBB", "JOB0STJ0000000"]
    with ledger.write() as connection:
        deaths.record(connection, "mail", [death(job) for job in jobs])
        assert [v.job for v in victims.find_victims(connection, "mail", keep=0)] == sorted(jobs)
        assert [job for job, _ in deaths.open_jobs(connection, "mail")] == sorted(jobs)


@pytest.mark.parametrize("by_mint", [False, True])
@pytest.mark.parametrize("many", [False, True])
def test_whom_a_trim_listed_is_known_to_the_next(ledger: Ledger, by_mint: bool, many: bool) -> None:
    jobs = [mint() for _ in range(1200 if many else 6)]
    run = mint("RUN")
    with ledger.write() as connection:
        deaths.record(connection, "mail", [death(job, first_seen_ms=NOW + i // 2) for i, job in enumerate(jobs)])
        deaths.record(connection, "orders", [death(job) for job in jobs[:2]])
        found = victims.find_victims(connection, "mail", keep=2, by_mint=by_mint)
        listing = victims.up_to("mail", run, found[-1], by_mint=by_mint)
        victims.note(connection, listing)
    with ledger.write() as connection:
        assert victims.noted(connection, "mail") == listing
        assert victims.noted(connection, "orders") is None
        covered = [job for i, job in enumerate(jobs) if listing.covers(job, NOW + i // 2)]
        assert covered == [victim.job for victim in found] == jobs[:-2]
        stay = set(covered[::2]) if many else {covered[1]}
        removed = [job for job in covered if job not in stay]
        assert victims.close_trimmed(connection, listing, removed, stay, NOW + 1) == len(removed)
        assert victims.noted(connection, "mail") is None
    ends = {d.job: (d.gone_how, d.gone_by) for d in deaths.iterate(ledger, queue="mail")}
    assert ends == {job: ("trimmed", run) if job in set(removed) else (None, None) for job in jobs}


@given(st.lists(st.binary(max_size=700)), st.lists(st.binary(max_size=300)))
def test_a_snapshot_comes_back_whole(texts: list[bytes], logs: list[bytes]) -> None:
    flat = texts if len(texts) % 2 == 0 else texts[:-1]
    found = snapshot.unpack_death(snapshot.pack_row(flat, logs))
    assert list(found.row) == flat
    assert list(found.logs) == logs


def interruption(**more: object) -> Interruption:
    base = Interruption("mail", "restart", "a" * 40, "b" * 40, NOW - 5000, NOW, NOW + 100, census_ms=NOW + 100)
    return dataclasses.replace(base, **more)


def test_an_interruption_with_its_census(ledger: Ledger) -> None:
    jobs = [mint() for _ in range(3)]
    leases = [Counted(jobs[0], 1, NOW + 10), Counted(jobs[1], None, NOW + 20), Counted(jobs[2], 7, NOW + 30)]
    with ledger.write() as connection:
        number = interruptions.add(connection, interruption(in_flight=3), leases)
        assert interruptions.census_of(connection, number, [*jobs[:2], mint()]) == {
            jobs[0]: leases[0],
            jobs[1]: leases[1],
        }
        interruptions.settle(connection, number, {jobs[0]: "exempted", jobs[2]: "died"})
        found = interruptions.latest(connection, "mail")
        assert found is not None
        assert (found.exempted, found.recovered, found.died) == (1, 1, 1)
        assert interruptions.outcomes_of(connection, number) == {jobs[0]: "exempted", jobs[1]: None, jobs[2]: "died"}
        interruptions.add_vanished(connection, number, jobs[:2], "dead")
        interruptions.add_vanished(connection, number, jobs[1:2], "dead")
    [row] = interruptions.listing(ledger, "mail")
    assert row.vanished == 2
    assert interruptions.listing(ledger, "orders") == []


def test_contacts(ledger: Ledger) -> None:
    with ledger.write() as connection:
        interruptions.save_contact(connection, "mail", swept_ms=1)  # never seen: there is nothing to say
        assert interruptions.contact_of(connection, "mail") is None
        interruptions.save_contact(connection, "mail", run_id="r", replid="p", seen_ms=5, token=4)
        interruptions.save_contact(connection, "mail", swept_ms=9)
        interruptions.note_tokens(connection, {"mail": (6, 3)})
    interruptions.mark_lost(ledger, ["mail", "orders"])
    with ledger.read() as connection:
        found = interruptions.contact_of(connection, "mail")
    assert found is not None
    assert (found.seen_ms, found.swept_ms, found.token, found.went_back, found.lost) == (5, 9, 6, True, True)


def test_holds(ledger: Ledger) -> None:
    holds.hold(ledger, Hold("mail", NOW, NOW + 1000, "me"))
    holds.hold(ledger, Hold("mail", NOW, NOW + 5000, "you", "a reason"))
    with ledger.read() as connection:
        found = holds.hold_of(connection, "mail", NOW + 4999)
        assert found is not None
        assert (found.holder, found.why) == ("you", "a reason")
        assert holds.hold_of(connection, "mail", NOW + 5000) is None
        assert holds.hold_of(connection, "orders", NOW) is None
    assert holds.release(ledger, "mail")
    assert not holds.release(ledger, "mail")
    assert holds.all_holds(ledger) == []


def test_windows_and_selectors(ledger: Ledger) -> None:
    """C20: ``mail[1]`` is one queue and never ``mail1``."""
    for selector in ("*", "mail-*", "mail[1]"):
        holds.open_window(ledger, Window(selector, NOW, NOW + 1000))

    def covering(queue: str, since: int = 0) -> list[str]:
        with ledger.read() as connection:
            return [w.queues for w in holds.windows_of(connection, queue, since)]

    assert covering("mail-7") == ["*", "mail-*"]
    assert covering("mail[1]") == ["*", "mail[1]"]
    assert covering("mail1") == ["*"]
    assert covering("mail1", NOW + 1001) == []
    assert [w.queues for w in holds.close_windows(ledger, NOW + 10, "mail-*")] == ["mail-*"]
    assert len(holds.close_windows(ledger, NOW + 20)) == 2
    assert [w.end_ms for w in holds.all_windows(ledger)] == [NOW + 20, NOW + 10, NOW + 20]
    with pytest.raises(BadInputError, match="must end after it starts"):
        holds.open_window(ledger, Window("*", NOW, NOW))


def test_run_requests(ledger: Ledger) -> None:
    first = requests.ask(ledger, "sweep", "mail", {"policy": {"limit": 5}}, "cli")
    second = requests.ask(ledger, "trim", "orders", {}, "cli")
    assert [r.id for r in requests.waiting(ledger)] == [first, second]
    assert [r.id for r in requests.waiting(ledger, ["orders"])] == [second]
    assert requests.take(ledger, first, "leader")
    assert not requests.take(ledger, first, "another")
    assert not requests.withdraw(ledger, first)
    requests.answer(ledger, first, report={"dead": 3})
    found = requests.get(ledger, first)
    assert found is not None
    assert found.over
    assert (found.report, found.taken_by, found.options) == ({"dead": 3}, "leader", {"policy": {"limit": 5}})
    assert requests.take(ledger, second, "leader")
    assert requests.left_behind(ledger, ["orders"], "leader") == []  # still that one's own
    assert requests.left_behind(ledger, ["mail"], "next") == []
    [left] = requests.left_behind(ledger, ["orders"], "next")
    assert requests.put_back(ledger, left)
    assert not requests.put_back(ledger, left)
    assert requests.withdraw(ledger, second)
    assert requests.waiting(ledger) == []


def test_competitors_and_alerts(ledger: Ledger) -> None:
    with ledger.write() as connection:
        assert alerts.note_competitor(connection, "mail", alerts.RECOVERER, NOW, 2, {"jobs": []})
        assert not alerts.note_competitor(connection, "mail", alerts.RECOVERER, NOW + 5, 3, {"jobs": ["x"]})
        alerts.add_alert(connection, alerts.Alert("mail", "burst", "text", NOW, {"leases": 12}))
    [found] = alerts.competing(ledger, "mail")
    assert (found.times, found.first_ms, found.last_ms, found.evidence) == (5, NOW, NOW + 5, {"jobs": ["x"]})
    [alert] = alerts.listing(ledger)
    assert (alert.kind, alert.facts) == ("burst", {"leases": 12})
    assert alerts.listing(ledger, after=alert.id) == []


def test_retention_forgets_what_is_old_and_nothing_else(ledger: Ledger) -> None:
    year = 366 * 86_400_000
    old, dead, fresh = mint(), mint(), mint()
    with ledger.write() as connection:
        deaths.record(connection, "mail", [death(old, snapshot=b"p"), death(dead), death(fresh, snapshot=b"p")])
        deaths.close(connection, "mail", [old], deaths.TRIMMED, NOW)
        deaths.close(connection, "mail", [fresh], deaths.TRIMMED, NOW + year - 40 * 86_400_000)
        first = interruptions.add(connection, interruption(), [Counted(old, 1, NOW)])
        last = interruptions.add(connection, interruption(), [Counted(old, 1, NOW)])
        alerts.add_alert(connection, alerts.Alert("mail", "burst", "text", NOW))
    holds.open_window(ledger, Window("*", NOW, NOW + 1000))
    gone = retention.prune(ledger, NOW + year)
    told = {name: count for name, count in gone.items() if count}
    assert told == {"deaths": 1, "snapshots": 2, "census": 1, "interruptions": 1, "alerts": 1, "windows": 1}
    left = {d.job: d.snapshot for d in deaths.iterate(ledger)}
    assert left == {dead: None, fresh: None}
    assert [i.id for i in interruptions.listing(ledger)] == [last]
    assert first != last
    assert not any(retention.prune(ledger, NOW + year).values())


def test_retention_of_runs_and_requests_goes_by_the_hosts_clock(ledger: Ledger) -> None:
    run = runs.start(ledger, "sweep", "mail", holder="me")
    with ledger.write() as connection:
        runs.finish(connection, run, runs.DONE, counts={"dead": 1})
    requests.ask(ledger, "sweep", "mail", {}, "cli")
    assert not any(retention.prune(ledger, host_ms()).values())
    gone = retention.prune(ledger, host_ms() + 100 * 86_400_000)
    assert (gone["runs"], gone["requests"]) == (1, 1)
