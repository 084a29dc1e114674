"""Flow parents in the dead trim: their books go with them, whole, and come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.flow_records import snapshot_of_facts
from emq_ops.passes.acts.undo import undo_run
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.passes.shelf import Receipt, Shelf
from tests.support.keyspace import dump
from tests.support.passing import dead_of, kill_row, trimmed


def settled_parent(q: Queue, job: str) -> None:
    """The books of a flow parent whose children have all settled."""
    q.server.write("SET", q.keys.book(job, "dependencies"), 1)
    q.server.write("HSET", q.keys.book(job, "processed"), *[x for n in range(40) for x in (mint(), f"r\0{n}")])
    q.server.write("HSET", q.keys.book(job, "failed"), mint(), b"why \xff")
    q.server.write("HSET", q.keys.book(job, "unsuccessful"), "", "")


@pytest.mark.parametrize("archive", [False, True])
def test_the_books_of_a_flow_parent_come_back_with_it(
    server: Server, ledger: Ledger, mail: Queue, archive: bool
) -> None:
    """Byte for byte what was trimmed; from the archive's record the same."""
    shelf = Shelf(server, "mail")
    dead = kill_row(mail, 7)
    settled_parent(mail, dead[2])
    server.write("HSET", mail.keys.book(dead[4], "processed"), mint(), "alone")  # its count is gone already
    trimmed(server, ledger, keep=7)  # all are known, some as parents
    server.write("HSET", mail.keys.book(dead[4], "processed"), mint(), "and more since")
    before = dump(server)
    report = trimmed(server, ledger, keep=1, archive=archive, archiver=shelf if archive else None)
    assert report.removed_jobs == dead[:6]
    assert not [key for key in dump(server) if key.startswith("emq:") and any(job in key for job in dead[:6])]
    for job in dead[:6] if archive else ():
        whole = snapshot_of_facts(shelf.rows[job], (), shelf.facts[job])
        assert dict_of(whole.books[0]) == before.get(mail.keys.book(job, "processed"), {}).get("hash", {})
        assert dict_of(whole.books[1]) == before.get(mail.keys.book(job, "failed"), {}).get("hash", {})
        assert whole.dependencies == (b"1" if job == dead[2] else None)
    assert undo_run(server, report.run or "", ledger).done == 6
    after = dump(server)
    for keyspace in (before, after):
        keyspace.pop(mail.keys.lease)
    assert after == before


def dict_of(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


@pytest.mark.parametrize("change", [("HSET", "processed", "k", "v"), ("DEL", "failed"), ("SET", "dependencies", "0")])
def test_a_flow_parent_whose_books_changed_since_they_were_kept_survives(
    server: Server, ledger: Ledger, mail: Queue, change: tuple[str, ...]
) -> None:
    [job] = kill_row(mail, 1)
    server.write("HSET", mail.keys.book(job, "failed"), mint(), "why")
    server.write("SET", mail.keys.book(job, "dependencies"), 1)

    class Meddled(Shelf):
        def archive(self, jobs: Any, facts: Any, *, now_ms: int) -> Receipt:
            receipt = super().archive(jobs, facts, now_ms=now_ms)
            command, book, *more = change
            server.write(command, self.q.keys.book(job, book), *more)
            return receipt

    report = trimmed(server, ledger, keep=0, archive=True, archiver=Meddled(server, "mail"))
    assert report.removed == 0
    assert dead_of(mail) == [job]
    server.write("SET", mail.keys.book(job, "dependencies"), 0)
    assert trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail")).removed == 1
    assert not [key for key in dump(server) if job in key]
