"""Trimmed jobs come back: from the ledger while it keeps them, from the archive after that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from emq_ops.ledger.ledger import open_ledger
from emq_ops.ledger.retention import Retention, prune
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, jobs, settle
from tests.audit.working import LONG_MS, failed, put
from tests.support.cli import emq
from tests.support.keyspace import dump
from tests.support.valkey import Valkey


def of_the_wire(server: Server) -> dict[str, Any]:
    return {key: value for key, value in dump(server).items() if key.startswith("emq:")}


def test_undo_of_a_trim(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    where = ("--url", valkey.url, "--state", f"sqlite:///{tmp_path}/state.db")
    stores = ("--local", f"sqlite:///{tmp_path}/archive.db", "--remote", f"file:{tmp_path}/bucket")

    def ops(*argv: str, code: int = 0) -> Any:
        ran = emq(*argv, *where, *stores, "--output", "json")
        assert ran.code == code, ran
        return json.loads(ran.out)

    q = Queue(server, "orders")
    dead = [failed(q, b"boom \xff %d" % n, payload=b"\x00payload %d" % n) for n in range(8)]
    for job in dead[:4]:
        jobs.add_log(q, job, b"a line \xff")
    server.write("SET", q.keys.book(dead[1], "dependencies"), 1)  # a flow parent whose children have settled
    server.write("HSET", q.keys.book(dead[1], "failed"), "JOB0STBBIRAKHo", b"why \xff", "JOB0STBBIRAKHp", "")
    before = of_the_wire(server)
    first = ops("trim", "orders", "--yes", "--keep", "3", "--archive")
    assert first["removed"] == 5
    report = ops("undo", first["run"])
    assert (report["done"], report["left"]) == (5, {})
    assert "the next trim takes them again" in report["notes"][0]
    assert of_the_wire(server) == before

    second = ops("trim", "orders", "--yes", "--keep", "3", "--archive")
    with open_ledger(where[3]) as ledger:
        assert prune(ledger, server.now_ms("orders") + 1000, Retention(snapshots_ms=0))["snapshots"] == 5
    [one] = ops("rehydrate", "orders", dead[0])["done_jobs"]
    assert one == dead[0]
    report = ops("undo", second["run"])
    assert (report["done"], report["left"]) == (4, {})  # the fifth is dead again: its death is not this run's any more
    assert of_the_wire(server) == before

    third = ops("trim", "orders", "--yes", "--keep", "3", "--archive")
    with open_ledger(where[3]) as ledger:
        prune(ledger, server.now_ms("orders") + 1000, Retention(snapshots_ms=0))
    ran = emq("undo", third["run"], *where)  # without the archive they are nowhere
    assert ran.code == 1
    assert "5 lost" in ran.err
    assert ops("undo", third["run"])["done"] == 5
    life = ops("audit", "job", dead[0])
    whats = [event["what"] for event in life["events"]]
    assert whats.count("archived") >= 1
    assert life["live"] == [{"queue": "orders", "state": "dead"}]


def test_what_was_edited_after_it_died_comes_back_as_it_went(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    """The ledger had it as it was first seen; the archive, and the undo, have it as it was taken away."""
    where = ("--url", valkey.url, "--state", f"sqlite:///{tmp_path}/state.db", "--output", "json")
    stores = ("--local", f"sqlite:///{tmp_path}/archive.db", "--remote", f"file:{tmp_path}/bucket")
    q = Queue(server, "orders")
    dead = [failed(q, b"boom", payload=b"%d" % n) for n in range(5)]
    assert emq("sweep", "orders", *where).code == 0
    jobs.add_log(q, dead[0], b"looked at \xff")
    jobs.update_payload(q, dead[1], b"mended \x00")
    server.write("HSET", q.keys.row(dead[2]), "note", "by hand")
    server.write("HDEL", q.keys.row(dead[3]), "last_error")
    before = of_the_wire(server)
    ran = emq("trim", "orders", "--yes", "--keep", "0", "--archive", *where, *stores)
    report = json.loads(ran.out)
    assert (report["removed"], report["archived"]) == (5, 5)
    assert json.loads(emq("undo", report["run"], *where).out)["done"] == 5  # without the archive
    assert of_the_wire(server) == before


def test_a_life_across_archive_and_live_tail(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    where = ("--url", valkey.url, "--state", f"sqlite:///{tmp_path}/state.db")
    stores = ("--local", f"sqlite:///{tmp_path}/archive.db", "--remote", f"file:{tmp_path}/bucket")
    q = Queue(server, "orders")
    made = put(q, 2)
    for number, job in enumerate(made):
        claim = claims.claim(q, LONG_MS)
        assert claim is not None
        settle.complete(
            q,
            job,
            claim.token,
            record=settle.CompletionRecord("completed", claim.claimed_ms, 1, result=b"<b>\x1b ok %d" % number),
        )
        if number == 0:
            ran = emq("archive", "fold", "orders", "completions", *where, *stores)
            assert ran.code == 0, ran
    for job in made:
        ran = emq("audit", "job", job, *where, *stores, "--output", "json")
        assert ran.code == 0, ran
        events = json.loads(ran.out)["events"]
        assert [event["what"] for event in events] == ["minted", "completed"]
        assert "ok" in events[1]["text"]
