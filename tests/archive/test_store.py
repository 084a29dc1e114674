"""The local database, on SQLite and PostgreSQL: what was added is there once, in order, with every byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emq_archive.chunk import Batch
from emq_archive.deadjob import dead_entry
from emq_archive.local import SqlStore, open_local
from emq_archive.local.catalog import Catalog
from emq_archive.model import Frontier, Policy, Redact, StreamRef, parse_id, show_id
from tests.archive.making import DAY_MS, REF, START_MS, add, entry, job_of, plain, settled

TOP = 18446744073709551615


def test_a_page_is_stored_with_its_frontier(local: SqlStore) -> None:
    entries = settled(50)
    assert local.frontier(REF) is None
    added = add(local, entries)
    assert (added.new, added.known, added.reborn) == (50, 0, 0)
    assert plain(local.records(REF)) == entries
    frontier = local.frontier(REF)
    assert frontier is not None
    assert (frontier.last, frontier.folded) == (parse_id(entries[-1][0]), 50)
    outbox = local.outbox(REF)
    assert (outbox.records, outbox.first, outbox.oldest_ms) == (50, parse_id(entries[0][0]), START_MS)


def test_adding_again_changes_nothing(local: SqlStore) -> None:
    entries = settled(60)
    add(local, entries[:40])
    assert add(local, entries[:40]).known == 40
    assert add(local, entries[10:20]).known == 10
    again = add(local, entries)
    assert (again.new, again.known) == (20, 40)
    assert plain(local.records(REF)) == entries
    assert local.stats(REF).rows == 60


def test_late_lower_records_are_fine(local: SqlStore) -> None:
    entries = settled(30)
    add(local, entries[20:])
    add(local, entries[:10])
    add(local, entries[5:25])
    assert plain(local.records(REF)) == entries


def test_the_same_id_with_other_bytes_is_a_new_incarnation(local: SqlStore) -> None:
    add(local, [entry("1-0", "a", "1"), entry("2-0", "a", "2")])
    added = add(local, [entry("1-0", "a", "other"), entry("2-0", "a", "2"), entry("3-0", "a", "3")])
    assert (added.new, added.known, added.reborn) == (2, 1, 1)
    found = [(show_id(r.id), r.incarnation, r.first(b"a")) for r in local.records(REF)]
    assert found == [("1-0", 0, b"1"), ("1-0", 1, b"other"), ("2-0", 0, b"2"), ("3-0", 0, b"3")]
    assert add(local, [entry("1-0", "a", "third")]).reborn == 1
    assert [r.incarnation for r in local.records(REF, end=(1, 0))] == [0, 1, 2]
    assert add(local, [entry("1-0", "a", "1")]).known == 1


def test_c04_a_name_twice_stays_twice_and_in_order(local: SqlStore) -> None:
    add(local, [entry("1-0", "tag", "a", "tag", "b", "note", "x")])
    (record,) = local.records(REF)
    assert record.fields == ((b"tag", b"a"), (b"tag", b"b"), (b"note", b"x"))


def test_c13_sequence_numbers_are_unsigned_64_bit_and_ordered_as_numbers(local: SqlStore) -> None:
    for one in ("99-1", "100-2", "100-10"):
        add(local, [entry(one)])
    frontier = local.frontier(REF)
    assert frontier is not None
    assert frontier.last == (100, 10)
    other = StreamRef("mail", "other")
    for page in (("100-0", "100-1"), ("100-2", "100-3"), ("100-4",)):
        add(local, [entry(i) for i in page], other)
    assert [r.stream_id for r in local.records(other)] == [f"100-{i}" for i in range(5)]
    third = StreamRef("mail", "third")
    ids = ["1-9223372036854775807", "1-9223372036854775808", f"1-{TOP}", f"{TOP}-{TOP}"]
    for one in reversed(ids):
        add(local, [entry(one)], third)
    assert [r.stream_id for r in local.records(third)] == ids
    assert [r.stream_id for r in local.records(third, start=(1, TOP))] == ids[2:]


def test_bytes_of_any_kind_come_back(local: SqlStore) -> None:
    entries = [
        entry("1-0", b"\xff\xfe", b"", b"", b"\x00"),
        entry("2-0", "big", b"x" * 1024 * 1024),
        entry("3-0", "no-id", "here"),
        [b"4-0", [b"id", b"ABCnot-an-id!!", b"id", b"JOB0STBBIRAKHo", b"job", b"\xc3\x28"]],
    ]
    add(local, entries)
    assert plain(local.records(REF)) == entries


def test_one_day_a_row_and_rows_are_bounded(local: SqlStore) -> None:
    entries = settled(40, step_ms=DAY_MS // 10)
    add(local, entries)
    days = [waiting.day for waiting in Catalog(local, REF).waiting()]
    assert days == sorted(set(days))
    assert len(days) == 4 or len(days) == 5
    assert plain(local.records(REF)) == entries


def test_reading_by_range_job_and_limit(local: SqlStore) -> None:
    entries = settled(100)
    add(local, entries)
    assert plain(local.records(REF, parse_id(entries[10][0]), parse_id(entries[19][0]))) == entries[10:20]
    assert plain(local.records(REF, job=job_of(entries[42]))) == [entries[42]]
    assert plain(local.records(REF, limit=7)) == entries[:7]
    assert list(local.records(REF, job="JOB0STBBIRAKHo")) == []


def test_a_record_that_is_too_large_is_named_and_does_not_hold_up_the_rest(local: SqlStore) -> None:
    entries = [entry("1-0", "a", "1"), entry("2-0", "a", b"x" * 5000), entry("3-0", "a", "3")]
    added = add(local, entries, policy=Policy(max_record_bytes=1000))
    assert added.new == 2
    assert [(show_id(u.id), "1000" in u.reason) for u in added.unstorable] == [("2-0", True)]
    assert [r.stream_id for r in local.records(REF)] == ["1-0", "3-0"]


def test_redaction_happens_before_anything_is_stored(local: SqlStore) -> None:
    plainly = [entry("1-0", "job", "j", "email", "a@b.c", "name", "Ada"), entry("2-0", "email", "x@y.z")]
    policy = Policy(redact=Redact(drop=("name",), hash=("email",), salt="s"))
    add(local, plainly, policy=policy)
    stored = list(local.records(REF))
    assert [n for n, _ in stored[0].fields] == [b"job", b"email"]
    assert all((r.first(b"email") or b"").startswith(b"sha256:") for r in stored)
    assert stored[0].first(b"email") != stored[1].first(b"email")
    # Read again under the same policy, under none, or under another salt, it is the same record.
    for other in (policy, Policy(), Policy(redact=Redact(drop=("name",), hash=("email",), salt="t"))):
        assert add(local, plainly, policy=other).known == 2
    # And one that was stored plainly is not doubled by a policy that came later.
    add(local, [entry("3-0", "name", "Bob")])
    assert add(local, [entry("3-0", "name", "Bob")], policy=policy).known == 1


def test_dead_jobs_are_records_with_an_identity_of_their_own(local: SqlStore) -> None:
    ref = StreamRef.dead("mail")
    row = [(b"state", b"dead"), (b"attempts", b"3"), (b"payload", b"{}"), (b"last_error", b"boom")]
    first = dead_entry("JOB0STBBIRAKHo", row, [b"l1", b"l2"], [(b"seen_at", b"5")], attempts=3, stalls=1)
    assert add(local, [first, first], ref).new == 1
    seen_later = dead_entry("JOB0STBBIRAKHo", row, [b"l1", b"l2"], [(b"seen_at", b"9")], attempts=3, stalls=1)
    assert add(local, [seen_later], ref).known == 1
    died_again = dead_entry("JOB0STBBIRAKHo", row, [b"l1", b"l2"], attempts=4, stalls=1)
    other_log = dead_entry("JOB0STBBIRAKHo", row, [b"l1"], attempts=3, stalls=1)
    assert add(local, [died_again, other_log], ref).new == 2
    found = list(local.records(ref, job="JOB0STBBIRAKHo"))
    assert [(r.incarnation, r.attempts, r.error, r.time_ms) for r in found] == [
        (0, 3, b"boom", 5),
        (1, 3, b"boom", found[1].id[0]),
        (0, 3, b"boom", found[2].id[0]),
    ]


def test_small_shipped_rows_become_one(local: SqlStore) -> None:
    entries = settled(60)
    for at in range(0, 60, 5):
        add(local, entries[at : at + 5])
    catalog = Catalog(local, REF)
    waiting = catalog.waiting()
    assert len(waiting) == 12
    reading = local.records(REF)
    assert plain([next(reading)]) == entries[:1]
    assert catalog.shipped(waiting, 1)
    assert not catalog.shipped(waiting, 1)
    assert plain(reading) == entries[1:]  # a reader under way does not stumble over it
    assert (local.stats(REF).rows, local.outbox(REF).records) == (60, 0)


def test_two_streams_do_not_meet(local: SqlStore) -> None:
    other = StreamRef("orders", "audit")
    add(local, settled(3))
    add(local, settled(2), other)
    assert (local.stats(REF).rows, local.stats(other).rows) == (3, 2)
    assert local.streams() == [REF, other]


def test_the_frontier_alone_can_move(local: SqlStore) -> None:
    add(local, settled(3))
    local.add(REF, Batch(), Frontier(last=(7, 7), life=2, run_id="r"), Policy())
    frontier = local.frontier(REF)
    assert frontier is not None
    assert (frontier.last, frontier.life, frontier.run_id, frontier.folded) == ((7, 7), 2, "r", 3)


def test_a_database_keeps_its_state(new_local_url: Callable[[], str]) -> None:
    url = new_local_url()
    with open_local(url) as one:
        state = one.state()
    with open_local(url) as two:
        assert two.state() == state


def test_a_password_is_never_shown(postgres: object) -> None:
    with pytest.raises(Exception, match="does not answer") as caught:
        open_local("postgresql://ops:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(caught.value)
