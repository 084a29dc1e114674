"""What the ledger keeps of a dead job is what a trim takes away, also where it was edited since it was first seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from emq_ops.ledger import contents, deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import snapshots
from emq_ops.ledger.snapshot import fingerprint_of, unpack_death
from emq_ops.passes.acts.undo import undo_run
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.passes.shelf import Shelf
from tests.support.keyspace import dump
from tests.support.passing import kill_row, trimmed

_texts = st.lists(st.sampled_from([b"", b"1", b":", b"1:1", b"*", b"-"]), max_size=4)
_rows = st.tuples(_texts.filter(lambda texts: len(texts) % 2 == 0), _texts)


@given(_rows, _rows)
def test_only_the_same_row_and_logs_have_the_same_fingerprint(
    one: tuple[list[bytes], list[bytes]], other: tuple[list[bytes], list[bytes]]
) -> None:
    assert (fingerprint_of(*one) == fingerprint_of(*other)) == (one == other)


@pytest.mark.parametrize("marked", [True, False], ids=["with fingerprints", "kept by an earlier version"])
def test_an_edited_job_is_kept_anew_and_no_other(server: Server, ledger: Ledger, mail: Queue, marked: bool) -> None:
    _, field, value, line, order = dead = kill_row(mail, 5)
    trimmed(server, ledger, keep=5)  # all are known now
    server.write("HSET", mail.keys.row(field), "note", "more")
    server.write("HSET", mail.keys.row(value), "payload", b"other \xff")
    server.write("RPUSH", mail.keys.book(line, "logs"), "added")
    told = server.read("HGETALL", mail.keys.row(order))
    server.write("DEL", mail.keys.row(order))
    server.write("HSET", mail.keys.row(order), *[x for i in range(0, len(told), 2)[::-1] for x in told[i : i + 2]])
    with ledger.read() as connection:
        before = contents.kept(connection, "mail", dead)
    if not marked:
        with ledger.write() as connection:
            connection.execute(update(snapshots).values(seal=None))
    stood = dump(server)
    report = trimmed(server, ledger, keep=0, archive=True, archiver=Shelf(server, "mail"))
    assert report.removed_jobs == dead
    after = {death.job: death.snapshot or b"" for death in deaths.iterate(ledger, queue="mail")}
    assert {job for job in dead if after[job] != before[job]} == {field, value, line}
    assert unpack_death(after[line]).logs == (b"added",)
    assert undo_run(server, report.run or "", ledger).done == 5
    back = dump(server)
    for keyspace in (stood, back):
        keyspace.pop(mail.keys.lease)
    assert back == stood


def test_every_row_that_is_kept_has_its_fingerprint(server: Server, ledger: Ledger, mail: Queue) -> None:
    dead = kill_row(mail, 3)
    trimmed(server, ledger, keep=3)
    server.write("HSET", mail.keys.row(dead[0]), "note", "more")
    trimmed(server, ledger, keep=2, archive=True, archiver=Shelf(server, "mail"))
    with ledger.read() as connection:
        rows = connection.execute(snapshots.select()).all()
    assert len(rows) == 3
    kept = [(row.seal, unpack_death(row.body)) for row in rows]
    assert all(found == fingerprint_of(job.row, job.logs) for found, job in kept)
