"""Requeue, remove, undo, rehydrate as an operator types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, jobs, settle
from tests.audit.working import LONG_MS, failed
from tests.support.cli import Ran, emq
from tests.support.keyspace import dump
from tests.support.valkey import Valkey


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ops(valkey: Valkey, *argv: str) -> Ran:
    return emq(*argv, "--url", valkey.url)


def test_dry_run_is_the_default(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    q = Queue(server, "orders")
    dead = [failed(q, b"HTTP 503"), failed(q, b"HTTP 503"), failed(q, b"boom")]
    before = dump(server)
    for verb in ("--requeue", "--remove"):
        for more in ((), ("--dry-run",), ("--dry-run", "--yes")):
            ran = ops(valkey, "audit", "dead", "orders", "--error", "HTTP*", verb, *more)
            assert ran.code == 0
            assert "2 would be re" in ran.err
            assert dump(server) == before
    ran = ops(valkey, "audit", "dead", "orders", "--error", "HTTP*", "--requeue", "--output", "json")
    [report] = json.loads(ran.out)["acts"]
    assert (report["status"], report["selected"], report["done_jobs"]) == ("dry", 2, dead[:2])
    assert "their next error kills them again" in ran.err
    assert not (tmp_path / ".emq").exists() or not list((tmp_path / ".emq").glob("*.db"))


def test_requeued_jobs_complete(server: Server, valkey: Valkey) -> None:
    q = Queue(server, "orders")
    dead = [failed(q, b"HTTP 503") for _ in range(3)]
    ran = ops(valkey, "audit", "dead", "orders", "--requeue", "--yes", "--why", "fixed", "--output", "json")
    assert ran.code == 0, ran.err
    [report] = json.loads(ran.out)["acts"]
    assert report["done"] == 3
    while (claim := claims.claim(q, LONG_MS)) is not None:
        settle.complete(q, claim.job, claim.token)
        dead.remove(claim.job)
    assert dead == []
    shown = json.loads(ops(valkey, "runs", "show", report["run"], "--output", "json").out)
    assert (shown["kind"], shown["policy"]["why"], shown["status"]) == ("requeue", "fixed", "done")


def test_remove_undo_rehydrate(server: Server, valkey: Valkey) -> None:
    q = Queue(server, "orders")
    dead = [failed(q, b"boom %d" % n, payload=bytes([n])) for n in range(5)]
    before = dump(server)
    ran = ops(valkey, "audit", "dead", "orders", "--error", "boom #", "--remove", "--yes", "--output", "json")
    [report] = json.loads(ran.out)["acts"]
    assert report["done"] == 5
    assert server.read("ZCARD", q.keys.dead) == 0
    ran = ops(valkey, "undo", report["run"], "--dry-run")
    assert "5 would be brought back" in ran.err
    stranger, gone = ids.mint(), dump(server)
    ran = ops(valkey, "rehydrate", "orders", dead[1], stranger, "--dry-run", "--output", "json")
    dry = json.loads(ran.out)
    assert (ran.code, dry["status"], dry["done_jobs"], dry["left"]) == (0, "dry", [dead[1]], {"lost": 1})
    assert "1 would be brought back; 1 lost" in ran.err
    assert dump(server) == gone
    ran = ops(valkey, "rehydrate", "orders", dead[1], "--yes", "--output", "json")
    assert (ran.code, json.loads(ran.out)["done_jobs"]) == (0, [dead[1]])
    ran = ops(valkey, "rehydrate", "orders", dead[1], "--dry-run")
    assert (ran.code, "0 would be brought back; 1 exists" in ran.err) == (0, True)
    ran = ops(valkey, "undo", report["run"], "--yes", "--why", "too hasty")
    assert ran.code == 0
    assert "4 brought back; 1 exists" in ran.err
    assert dump(server) == before
    again = ops(valkey, "undo", report["run"])
    assert (again.code, "0 brought back; 1 exists" in again.err) == (1, True)
    assert ops(valkey, "rehydrate", "orders", ids.mint()).code == 1
    assert ops(valkey, "rehydrate", "orders", dead[0], "--requeue").code == 1  # it lives


@pytest.mark.parametrize(
    "argv",
    [
        ("audit", "dead", "--requeue", "--yes"),
        ("audit", "dead", "--remove", "--requeue", "orders"),
        ("audit", "dead", "orders", "--remove", "--yes", "--error", "nothing like it"),
        ("audit", "dead", "orders", "--remove", "--yes", "--error", ""),
        ("audit", "dead", "orders", "--remove", "--yes", "--error", " "),
        ("audit", "dead", "orders", "--remove", "--yes", "--payload", ""),
        ("audit", "dead", "orders", "--remove", "--yes", "--job", ""),
        ("audit", "dead", "orders", "--remove", "--yes", "--cause", "bored"),
        ("audit", "dead", "orders", "--remove", "--yes", "--older", "1"),
        ("audit", "dead", "orders", "--remove", "--yes", "--suspects"),
        ("audit", "dead", "ord?rz", "--remove", "--yes"),
        ("audit", "dead", "orders", "--remove", "--yes", "--rate", "0"),
        ("audit", "dead", "orders", "--requeue", "--yes", "--html", "/no/such/folder/page.html"),
        ("audit", "dead", "orders", "--requeue", "--yes", "--html", "-", "--output", "json"),
        ("audit", "restarts", "--html", "-", "--output", "csv"),
        ("audit", "dead", "--resume", "RUN0STBBIRAKHo"),
        ("audit", "job", "JOB5"),
        ("audit", "what-if", "--max-stalled", "0"),
        ("undo", "RUN5"),
        ("undo", "RUN0STBBIRAKHo"),
        ("rehydrate", "orders", "JOB5"),
        ("rehydrate", "or{ders", "JOB0STBBIRAKHo"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(server: Server, valkey: Valkey, argv: tuple[str, ...]) -> None:
    failed(Queue(server, "orders"), b"HTTP 503")
    before = dump(server)
    ran = ops(valkey, *argv)
    assert ran.code == 4, (argv, ran)
    assert ran.err.count("\n") == 1
    assert ran.out == ""
    assert dump(server) == before


def test_no_suspects_is_not_nothing_dead(server: Server, valkey: Valkey) -> None:
    failed(Queue(server, "orders"), b"HTTP 503")
    for argv in (("--list",), ("--requeue",)):
        ran = ops(valkey, "audit", "dead", "orders", "--suspects", *argv)
        assert (ran.code, "orders: no dead job fits (restart suspects)" in ran.err) == (4, True)


def test_a_protected_queue(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    failed(Queue(server, "orders"), b"HTTP 503")
    (tmp_path / "config.yaml").write_text(f"server: {{url: '{valkey.url}'}}\nqueues: {{orders: {{protect: true}}}}\n")
    before = dump(server)
    ran = emq("audit", "dead", "orders", "--remove", "--yes")
    assert ran.code == 1
    assert "protected" in ran.err
    assert dump(server) == before
    assert emq("audit", "dead", "orders", "--requeue", "--yes").code == 0


def test_beside_another_state(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    q = Queue(server, "orders")
    failed(q, b"HTTP 503")
    assert emq("sweep", "orders", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/theirs.db").code == 0
    ran = ops(valkey, "audit", "dead", "orders", "--remove", "--yes", "--state", f"sqlite:///{tmp_path}/ours.db")
    assert ran.code == 1
    assert "belongs to state" in ran.err
    assert len(jobs_left(q)) == 1
    [job] = jobs_left(q)
    assert jobs.read_row(q, job) is not None


def jobs_left(q: Queue) -> list[str]:
    return [job.decode() for job in q.server.read("ZRANGE", q.keys.dead, 0, -1)]
