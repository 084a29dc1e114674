"""One act on several queues is one run with one undo; requeues, drains and edits are taken back. On both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.ledger import acts, deaths, runs
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.acts import slices
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.batch import act_on_all, parts_of, resume_all, undo_all
from emq_ops.passes.acts.edit import edit_payload
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import Targets, choose
from emq_ops.passes.acts.undo import undo_run
from emq_ops.passes.acts.waiting import SCHEDULED, WAITING, WaitingSelection, WaitingSet
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, UnreachableError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, jobs, settle
from emq_ops.protocol.transitions.enqueue import schedule_in
from tests.passes.acts.seeding import LONG_MS, die, seed
from tests.support.keyspace import dump
from tests.support.passing import add, dead_of
from tests.support.postgres import Postgres

QUEUES = ("alpha", "beta", "gamma")


@pytest.fixture(params=["sqlite", "postgresql"])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A state database of each kind."""
    url = f"sqlite:///{tmp_path}/book.db"
    if request.param == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        url = postgres.fresh()
    with open_ledger(url) as opened:
        yield opened


def plain(_queue: str) -> ActOptions:
    return ActOptions(rate=100_000, slice_size=2)


def targets(server: Server) -> list[Targets]:
    return [choose(server, queue, DeadSelection()) for queue in QUEUES]


def wire(server: Server) -> dict[str, object]:
    """What workers see of the queues; wake-ups, which only hurry them, apart."""
    return {key: value for key, value in dump(server).items() if key.startswith("emq:") and not key.endswith("}:wake")}


@pytest.mark.parametrize("kind", [acts.REQUEUE, acts.REMOVE])
def test_one_run_and_one_undo(server: Server, book: Ledger, kind: str) -> None:
    for queue in QUEUES:
        seed(Queue(server, queue), 4)
    before = wire(server)
    begun: list[str] = []
    reports = act_on_all(server, kind, targets(server), book, plain, begun.append)
    assert [(report.queue, report.done) for report in reports] == [(queue, 4) for queue in QUEUES]
    [run] = begun
    whole = runs.get(book, run)
    assert (whole.queue, whole.kind, whole.status, whole.counts) == ("*", kind, "done", {"selected": 12, "done": 12})
    assert [runs.get(book, part).policy["part_of"] for part in parts_of(book, run)] == [run] * 3
    assert not any(dead_of(Queue(server, queue)) for queue in QUEUES)
    assert [report.done for report in undo_all(server, run, book)] == [4, 4, 4]
    assert wire(server) == before
    assert sum(1 for _ in deaths.iterate(book, only_open=True)) == 12
    assert [report.selected for report in undo_all(server, run, book)] == [0, 0, 0]


def test_cut_off_between_queues_it_goes_on_as_one_run(
    server: Server, book: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in QUEUES:
        seed(Queue(server, queue), 3)
    send, begun = slices.send_slice, list[str]()

    def breaks(server: Server, kind: str, keys: object, *more: object) -> None:
        if getattr(keys, "queue", "") == "beta":
            raise UnreachableError("away")
        send(server, kind, keys, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(slices, "send_slice", breaks)
    with pytest.raises(UnreachableError):
        act_on_all(server, acts.REMOVE, targets(server), book, plain, begun.append)
    monkeypatch.undo()
    [run] = begun
    assert (runs.get(book, run).status, runs.get(book, run).counts["done"]) == ("interrupted", 3)
    assert len(dead_of(Queue(server, "gamma"))) == 3
    assert [(report.queue, report.done) for report in resume_all(server, run, book, plain)] == [
        ("beta", 3),
        ("gamma", 3),
    ]
    assert (runs.get(book, run).status, runs.get(book, run).counts["done"]) == ("done", 9)
    with pytest.raises(BadInputError, match="is done"):
        resume_all(server, run, book, plain)


@pytest.mark.parametrize("most", [None, 0, 1, 5])
def test_attempts_of_requeued_jobs(server: Server, book: Ledger, most: int | None) -> None:
    q = Queue(server, "orders")
    once, held = die(q), die(q)
    server.write("HSET", q.keys.row(once), "attempts", "3")
    server.write("SET", q.keys.book(held, "lock"), "1")
    before = wire(server)
    report = act(server, acts.REQUEUE, choose(server, "orders", DeadSelection()), book, ActOptions(keep_attempts=most))
    # A lower count is a token that an earlier claim had: whoever still holds the job could settle it.
    assert report.left == ({} if most is None else {"held": 1})
    row = jobs.read_row(q, once)
    assert row is not None
    assert row[b"attempts"] == (b"3" if most is None else b"%d" % min(3, most))
    assert any("their next error kills them again" in note for note in report.notes) == (most is None)
    assert undo_run(server, report.run or "", book).done == report.done
    assert wire(server) == before


def test_a_requeue_is_taken_back_only_where_nobody_claimed_since(server: Server, book: Ledger) -> None:
    q = Queue(server, "orders")
    dead = [die(q) for _ in range(4)]
    report = act(server, acts.REQUEUE, choose(server, "orders", DeadSelection()), book)
    first, second = claims.claim(q, LONG_MS), claims.claim(q, LONG_MS)
    assert first is not None
    assert second is not None
    settle.retry(q, second.job, second.token, settle.Failure(b"again", delay_ms=0, max_attempts=1))
    back = undo_run(server, report.run or "", book)
    assert (back.done, back.left) == (2, {"changed": 1, "dead": 1})
    assert dead_of(q) == sorted(dead[1:])
    assert jobs.read_row(q, dead[3]) is not None
    assert (jobs.read_row(q, dead[3]) or {})[b"last_error"] == b"HTTP 503"
    assert server.read("ZSCORE", q.keys.active, dead[0]) is not None


def test_drained_jobs_come_back_to_where_they_stood(server: Server, book: Ledger) -> None:
    q, lane = Queue(server, "orders"), ids.mint("GRP")
    add(q, 3, payload=b"\x00\xff")
    add(q, 3, group=lane)
    schedule_in(q, ids.mint(), b"later", 3_600_000)
    [child] = add(q)
    server.write("HSET", q.keys.row(child), "parent", "JOB0STBBIRAKHo")
    before = wire(server)
    found = WaitingSet(server, "orders", WaitingSelection((WAITING, SCHEDULED))).targets()
    report = act(server, acts.DRAIN, found, book, ActOptions(slice_size=2))
    assert (report.selected, report.done, report.left) == (8, 8, {})
    assert server.read("EXISTS", q.keys.ring, q.keys.schedule, q.keys.lane(lane)) == 0
    assert undo_run(server, report.run or "", book).done == 8
    assert wire(server) == before


def test_a_payload_is_edited_and_the_old_one_comes_back(server: Server, book: Ledger) -> None:
    q = Queue(server, "orders")
    job, old = die(q, payload=b"\x00old\xff"), wire(server)
    report = edit_payload(server, "orders", job, b"new \xfe", book)
    assert (report.done, (jobs.read_row(q, job) or {})[b"payload"]) == (1, b"new \xfe")
    run = runs.get(book, report.run or "")
    assert (run.kind, run.status, run.policy["job"]) == ("edit", "done", job)
    assert undo_run(server, run.id, book).done == 1
    assert wire(server) == old
    again = edit_payload(server, "orders", job, b"new", book)
    jobs.update_payload(q, job, b"somebody else's")
    left = undo_run(server, again.run or "", book)
    assert (left.done, left.left) == (0, {"changed": 1})
    jobs.requeue(q, job)
    assert claims.claim(q, LONG_MS) is not None
    assert edit_payload(server, "orders", job, b"x", book).left == {"active": 1}
    with pytest.raises(BadInputError, match="no job"):
        edit_payload(server, "orders", ids.mint(), b"x", book)
