"""A trim with an archive: a job goes only once it is proven to be there, byte for byte; else it stays, and is named."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest

from emq_archive.deadjob import dead_digest
from emq_ops.ledger import runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.errors import EmqError, FenceError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import jobs
from tests.passes.shelf import Receipt, Shelf
from tests.support.passing import dead_of, kill_row, trimmed


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

    def meddle(_receipt: Receipt) -> None:
        key = mail.keys.row(job) if change[1] == "row" else mail.keys.book(job, "logs")
        server.write(change[0], key, *change[2:])

    report = trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail", after=meddle))
    assert (report.removed, report.survived) == (0, 1)
    assert dead_of(mail) == [job]
    assert trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail")).removed == 1


def test_an_archive_that_fails_trims_nothing(server: Server, ledger: Ledger, mail: Queue) -> None:
    dead = kill_row(mail, 3)

    def fail(_jobs: Sequence[str]) -> None:
        raise EmqError("the store is gone")

    with pytest.raises(EmqError, match="the store is gone"):
        trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail", before=fail))
    assert dead_of(mail) == dead
    assert [run.status for run in runs.latest(ledger)] == ["failed"]
    assert trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail")).removed == 3


def test_with_an_archive_each_page_is_archived_before_it_goes(
    server: Server, ledger: Ledger, mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emq_ops.passes.trim.removal.ARCHIVE_PAGE", 7)
    dead = kill_row(mail, 40)

    def watch(receipt: Receipt) -> None:
        assert receipt.proven.keys() <= set(dead_of(mail))

    shelf = Shelf(server, "mail", refuse=[dead[9]], after=watch)
    report = trimmed(server, ledger, keep=1, archive=True, archiver=shelf, slice=3)
    assert report.removed_jobs == [job for job in dead[:39] if job != dead[9]]
    assert (report.archived, report.left, [s.job for s in report.skipped]) == (38, 2, [dead[9]])
    assert list(shelf.rows) == report.removed_jobs


def test_an_archive_that_fails_on_its_way_keeps_what_is_left(
    server: Server, ledger: Ledger, mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emq_ops.passes.trim.removal.ARCHIVE_PAGE", 5)
    dead = kill_row(mail, 20)

    def fail(some: Sequence[str]) -> None:
        if dead[10] in some:
            raise EmqError("the store is gone")

    with pytest.raises(EmqError, match="the store is gone"):
        trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail", before=fail), slice=2)
    assert dead_of(mail) == dead[10:]
    [run] = runs.latest(ledger)
    assert (run.status, run.counts["removed"]) == ("failed", 10)


def test_a_lease_that_is_lost_while_the_next_page_is_archived_ends_the_trim(
    server: Server, ledger: Ledger, mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emq_ops.passes.trim.removal.ARCHIVE_PAGE", 5)
    dead = kill_row(mail, 20)

    def lose(some: Sequence[str]) -> None:
        if dead[5] in some:
            server.write("DEL", mail.keys.lease)

    with pytest.raises(FenceError):
        trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail", before=lose), slice=2)
    assert set(dead[5:]) <= set(dead_of(mail))  # of the first five some may have gone before
    assert [run.status for run in runs.latest(ledger)] == ["failed"]


def test_of_two_failures_at_once_both_are_told(
    server: Server, ledger: Ledger, mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emq_ops.passes.trim.removal.ARCHIVE_PAGE", 5)
    dead = kill_row(mail, 20)

    def fail(some: Sequence[str]) -> None:
        if dead[5] in some:
            raise EmqError("the store is gone")

    def lose(_receipt: Receipt) -> None:
        server.write("DEL", mail.keys.lease)  # before what is proven may go

    shelf = Shelf(server, "mail", before=fail, after=lose)
    with pytest.raises(EmqError, match=r"^the store is gone; and, while that was tried, .*EMQFENCE no lease"):
        trimmed(server, ledger, keep=0, archive=True, archiver=shelf, slice=2)
    assert dead_of(mail) == dead
    [run] = runs.latest(ledger)
    assert "the store is gone; and, while that was tried, " in str(run.error)


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

    def meddle(receipt: Receipt) -> None:
        server.write("HSET", mail.keys.row(wide), receipt.proven[wide].names[-1], "other")

    report = trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail", after=meddle))
    assert (report.removed_jobs, report.survived) == ([same], 1)
    assert dead_of(mail) == [wide]


def test_the_digest_is_made_alike_on_both_sides(server: Server, ledger: Ledger, mail: Queue) -> None:
    values, logs = [b"1", b"", b"x" * 300], [b"", b"*", b"3:abc"]
    said = hashlib.sha1(b"1:10:300:" + b"x" * 300 + b"*0:1:*5:3:abc").hexdigest()
    assert dead_digest(values, logs) == said
