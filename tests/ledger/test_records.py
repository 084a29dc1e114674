"""What the ledger keeps of what happened: runs, deaths, victims, snapshots."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.database.errors import DatabaseLockedError
from emq_ops.ledger import deaths, runs, snapshot, victims
from emq_ops.ledger.ledger import PROFILE, Ledger, open_ledger
from emq_ops.ledger.pending_runs import IdleBook, PendingRuns
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import mint
from tests.ledger.made import NOW, death


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
        outbox, idle = PendingRuns(ledger), IdleBook(ledger, "me")
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
    book = IdleBook(ledger, "me")
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
