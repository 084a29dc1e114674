"""Acts over several queues, acts that break off, pages and stores that are away: nothing half done goes untold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts import slices
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.protocol.errors import UnreachableError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.audit.working import failed
from tests.support.cli import Ran, emq
from tests.support.keyspace import dump
from tests.support.passing import dead_of
from tests.support.valkey import Valkey

AWAY = "postgresql://127.0.0.1:1/nowhere"


@pytest.fixture
def where(valkey: Valkey, state: str) -> tuple[str, ...]:
    return ("--url", valkey.url, "--state", state)


def seeded(server: Server, *names: str) -> list[Queue]:
    queues = [Queue(server, name) for name in names]
    for q in queues:
        for n in range(3):
            failed(q, b"boom %d" % n)
    return queues


def begun(server: Server, ledger: Ledger, queue: str, kind: str = acts.REMOVE) -> str:
    """An act that was planned and then cut off, by a process that is gone."""

    class CutError(Exception):
        pass

    def cut(_seconds: float) -> None:
        raise CutError

    with pytest.raises(CutError):
        act(server, kind, choose(server, queue, DeadSelection()), ledger, ActOptions(rate=4, slice_size=1, sleep=cut))
    [run] = runs.latest(ledger, kind=kind)
    with ledger.write() as connection:
        runs.finish(connection, run.id, runs.INTERRUPTED)
    return run.id


def test_one_protected_queue_refuses_the_whole_removal(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    seeded(server, "alpha", "beta", "gamma")
    (tmp_path / "config.yaml").write_text(f"server: {{url: '{valkey.url}'}}\nqueues: {{beta: {{protect: true}}}}\n")
    before = dump(server)
    for more in ((), ("--yes",)):
        ran = emq("audit", "dead", "--error", "boom*", "--remove", *more)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "beta: protected" in ran.err
        assert dump(server) == before


def test_an_act_that_breaks_off_says_what_was_done_and_how_to_go_on(
    server: Server, where: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha, beta = seeded(server, "alpha", "beta")
    send = slices.send_slice

    def breaks(server: Server, kind: str, keys: Any, *more: Any) -> None:
        if keys.queue == "beta":
            raise UnreachableError("the server went away")
        send(server, kind, keys, *more)

    monkeypatch.setattr(slices, "send_slice", breaks)
    ran = emq("audit", "dead", "--error", "boom*", "--remove", "--yes", *where)
    monkeypatch.undo()
    assert ran.code == 3
    assert "alpha: 3 of 3 done before it broke off" in ran.err
    [told] = [line for line in ran.err.splitlines() if "--resume" in line]
    run = told.split("--resume ")[1].split("`")[0]
    assert f"`emq-ops undo {run}`" in told
    assert (dead_of(alpha), len(dead_of(beta))) == ([], 3)
    ran = emq("audit", "dead", "--resume", run, *where)
    assert (ran.code, "beta: 3 removed" in ran.err, dead_of(beta)) == (0, True, [])


def test_resume_shows_first_and_takes_what_was_selected(server: Server, ledger: Ledger, where: tuple[str, ...]) -> None:
    seeded(server, "orders")
    run = begun(server, ledger, "orders")
    before = dump(server)
    ran = emq("audit", "dead", "--resume", run, "--dry-run", "--output", "json", *where)
    report = json.loads(ran.out)
    assert (ran.code, report["status"], report["selected"], report["run"]) == (0, "dry", 2, run)
    assert "orders: 2 would be removed" in ran.err
    for more in (("--requeue",), ("orders",), ("--cause", "error"), ("--suspects",)):
        ran = emq("audit", "dead", "--resume", run, *more, *where)
        assert (ran.code, ran.err.count("\n")) == (4, 1), more
    assert dump(server) == before
    assert "3 removed" in emq("audit", "dead", "--resume", run, "--remove", "--yes", *where).err


def test_an_act_is_not_resumed_on_a_queue_that_was_protected_since(
    server: Server, valkey: Valkey, ledger: Ledger, state: str, tmp_path: Path
) -> None:
    seeded(server, "orders")
    run = begun(server, ledger, "orders")
    config = tmp_path / "c.yaml"
    config.write_text(
        f"server: {{url: '{valkey.url}'}}\nstate: {{url: '{state}'}}\nqueues: {{orders: {{protect: true}}}}\n"
    )
    before = dump(server)
    for more in ((), ("--dry-run",)):
        ran = emq("audit", "dead", "--resume", run, "-c", config, *more)
        assert (ran.code, "protected" in ran.err) == (1, True)
    assert dump(server) == before
    assert emq("undo", run, "-c", config).code == 0


def test_a_dry_run_foretells_who_stays(server: Server, where: tuple[str, ...]) -> None:
    q = Queue(server, "orders")
    held, child, parent, free = (failed(q, b"boom") for _ in range(4))
    server.write("SET", q.keys.book(held, "lock"), "1", "PX", 600_000)
    server.write("HSET", q.keys.row(child), "parent", "JOB0STBBIRAKHo")
    server.write("SET", q.keys.book(parent, "dependencies"), "2")

    def acted(*argv: str) -> tuple[dict[str, Any], Ran]:
        ran = emq("audit", "dead", "orders", *argv, "--output", "json", *where)
        [report] = json.loads(ran.out)["acts"]
        return report, ran

    dry, ran = acted("--remove")
    assert "orders: 2 would be removed; 1 held" in ran.err
    requeued, _ = acted("--requeue")
    assert (requeued["left"], requeued["selected"]) == ({}, 4)
    done, _ = acted("--remove", "--yes")
    for name in ("selected", "left", "done_jobs", "left_jobs"):
        assert dry[name] == done[name], name
    assert done["done_jobs"] == sorted([child, free])


def test_a_page_that_can_not_be_written_is_refused_before_the_act(
    server: Server, where: tuple[str, ...], tmp_path: Path
) -> None:
    seeded(server, "orders")
    before = dump(server)
    ran = emq("audit", "dead", "orders", "--remove", "--yes", "--html", tmp_path, *where)
    assert (ran.code, ran.err.count("\n")) == (4, 1)
    assert dump(server) == before


def test_a_list_has_its_page_too(server: Server, where: tuple[str, ...], tmp_path: Path) -> None:
    [q] = seeded(server, "orders")
    page = tmp_path / "page.html"
    ran = emq("audit", "dead", "orders", "--list", "--html", page, "--output", "json", *where)
    assert [row["job"] for row in json.loads(ran.out)] == dead_of(q)
    assert "boom #" in page.read_text("utf-8")
    ran = emq("audit", "dead", "orders", "--list", "--html", "-", *where)
    assert (ran.code, ran.out.startswith("<!doctype html>"), ran.out.count("<html")) == (0, True, 1)


def test_a_removal_is_undone_and_a_life_told_while_the_archive_is_away(
    server: Server, ledger: Ledger, where: tuple[str, ...]
) -> None:
    [q] = seeded(server, "orders")
    [job, *_], before = dead_of(q), dump(server)
    run = act(server, acts.REMOVE, choose(server, "orders", DeadSelection()), ledger).run or ""
    ran = emq("undo", run, "--dry-run", "--output", "json", *where)
    assert {name: json.loads(ran.out)[name] for name in ("kind", "status", "selected")} == {
        "kind": "undo",
        "status": "dry",
        "selected": 3,
    }
    assert "3 would be brought back" in ran.err
    ran = emq("undo", run, "--local", AWAY, *where)
    assert (ran.code, dump(server)) == (0, before), ran
    ran = emq("audit", "job", job, "--local", AWAY, "--output", "json", *where)
    assert (ran.code, json.loads(ran.out)["live"]) == (0, [{"queue": "orders", "state": "dead"}])
    assert "without the archive" in ran.err


def test_a_damaged_key_hides_nothing_else(server: Server, where: tuple[str, ...]) -> None:
    [q] = seeded(server, "orders")
    server.write("SET", "emq:{worse}:dead", "x")
    ran = emq("audit", "dead", "--output", "json", *where)
    document = json.loads(ran.out)
    assert (ran.code, document["dead"]) == (0, 3)
    assert any(note.startswith("worse: not audited") for note in document["notes"])
    assert emq("audit", "dead", "worse", *where).code == 1
    assert emq("sweep", "orders", *where).code == 0
    job = dead_of(q)[0]
    server.write("UNLINK", q.keys.row(job))
    server.write("SET", q.keys.row(job), "x")
    ran = emq("audit", "job", job, "--output", "json", *where)
    life = json.loads(ran.out)
    assert (ran.code, [event["what"] for event in life["events"]]) == (0, ["minted", "died"])
    assert ("orders", "damaged") in [(place["queue"], place["state"]) for place in life["live"]]
    ran = emq("audit", "dead", "orders", "--job", job, "--requeue", "--yes", *where)
    assert (ran.code, "no dead job that fits has a readable row" in ran.err) == (4, True)


def test_ctrl_c_says_how_to_go_on(server: Server, where: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    [q] = seeded(server, "orders")

    def pressed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(slices, "send_slice", pressed)
    ran = emq("audit", "dead", "orders", "--requeue", "--yes", *where)
    assert (ran.code, ran.err.splitlines()[-1]) == (130, "emq-ops: interrupted")
    assert "`emq-ops dead requeue --resume RUN" in ran.err
    assert len(dead_of(q)) == 3
