"""Acting on selected dead jobs: exactly those, once, recorded; killed anywhere and resumed; undone to the byte."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger import acts, deaths, runs
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import preview
from emq_ops.passes.acts.selection import DeadSelection, EmptySelectionError
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.acts.undo import rehydrate_jobs, undo_run
from emq_ops.passes.frame.refusal import ProtectedError
from emq_ops.passes.lease.owner import ForeignQueueError
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, DamagedError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, jobs, recover, settle
from tests.passes.acts.seeding import LONG_MS, die, see, seed
from tests.support.invariants import violations
from tests.support.keyspace import dump, load_live


def without_lease(keyspace: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keyspace.items() if not key.endswith(":lease")}


def open_deaths(ledger: Ledger) -> list[tuple[str, bytes | None]]:
    return [(d.job, d.snapshot) for d in deaths.iterate(ledger, only_open=True)]


def test_a_requeue(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    dead = seed(q)
    see(server, ledger)
    chosen = choose(server, "orders", DeadSelection(errors=("boom*",)), ledger)
    before = dump(server)
    dry = preview(acts.REQUEUE, chosen)
    assert (dry.status, dry.selected, dry.done, dry.last_attempt) == ("dry", 10, 0, 10)
    assert "their next error kills them again" in dry.notes[0]
    assert dump(server) == before
    report = act(
        server,
        acts.REQUEUE,
        chosen,
        ledger,
        ActOptions(why="the fix is out", filters={"errors": ["boom*"]}, slice_size=3),
    )
    assert (report.done, report.left, report.done_jobs) == (10, {}, dead)
    assert violations(server, "orders") == []
    for job in dead:
        row = jobs.read_row(q, job)
        assert row is not None
        assert row[b"attempts"] == b"1"
        assert not {b"stalled", b"last_error"} & row.keys()
    run = runs.get(ledger, report.run or "")
    assert (run.kind, run.status, run.counts) == ("requeue", "done", {"selected": 10, "done": 10})
    assert (run.policy["why"], run.policy["selection"]) == ("the fix is out", {"errors": ["boom*"]})
    assert "@" in run.holder
    assert open_deaths(ledger) == []
    assert {d.gone_how for d in deaths.iterate(ledger)} == {"revived"}
    assert not any(key.startswith("emq-ops:{orders}:acted") for key in dump(server))
    assert undo_run(server, run.id, ledger).done == 10
    assert [death.gone_how for death in deaths.iterate(ledger, only_open=True)] == [None] * 10
    after = dump(server)
    for key in (q.keys.dead, q.keys.pending, *map(q.keys.row, dead)):
        assert after.get(key) == before.get(key), key


def test_only_what_is_still_as_it_was(server: Server, ledger: Ledger) -> None:
    """Between the selection and the act: requeued, died again, removed, held, damaged; a flow parent that waits."""
    q = Queue(server, "orders")
    a, b, c, d, e, g = (die(q) for _ in range(6))
    server.write("SET", q.keys.book(g, "dependencies"), "2")
    chosen = choose(server, "orders", DeadSelection())
    jobs.requeue(q, a)
    jobs.requeue(q, b)
    for job in (a, b):
        claim = claims.claim(q, LONG_MS)
        assert claim is not None
        if job == b:
            settle.retry(q, b, claim.token, settle.Failure(b"again", delay_ms=0, max_attempts=1))
    jobs.remove(q, c)
    server.write("SET", q.keys.book(d, "lock"), "1")
    server.write("HSET", q.keys.row(e), "stalled", "many")
    before = dump(server)
    report = act(server, acts.REMOVE, chosen, ledger)
    assert report.left == {"alive": 1, "changed": 1, "gone": 1, "held": 1, "damaged": 1, "parent": 1}
    assert report.done == 0
    assert dump(server) == before


@pytest.mark.parametrize("kind", [acts.REMOVE, acts.REQUEUE])
def test_deaths_that_nobody_recorded_are_recorded_before_they_are_acted_upon(
    server: Server, ledger: Ledger, kind: str
) -> None:
    dead = seed(Queue(server, "orders"), 4)
    chosen = choose(server, "orders", DeadSelection(newer_ms=0), ledger)  # first seen now
    begun = server.now_ms("orders")
    run = act(server, kind, chosen, ledger).run or ""
    found = list(deaths.iterate(ledger))
    assert sorted((d.job, d.found_by, d.killed_by, d.cause, d.gone_by) for d in found) == [
        (job, run, None, "error", run) for job in dead
    ]
    assert all(begun <= d.first_seen_ms <= (d.gone_ms or 0) and d.contents().get(b"payload") for d in found)
    if kind == acts.REMOVE:
        undo_run(server, run, ledger)
        assert [job for job, _ in open_deaths(ledger)] == dead


def test_five_hundred_removed_and_brought_back_to_the_byte(server: Server, ledger: Ledger) -> None:
    load_live(server)
    q = Queue(server, "billing")
    seed(q, 500)
    see(server, ledger, "billing")
    before, known = without_lease(dump(server)), open_deaths(ledger)
    chosen = choose(server, "billing", DeadSelection(errors=("boom*",)))
    assert len(chosen.jobs) == 500
    report = act(server, acts.REMOVE, chosen, ledger, ActOptions(rate=100_000))
    assert (report.done, report.left) == (500, {})
    gone = without_lease(dump(server))
    assert len(before) - len(gone) == 500 + 250 + 3 + 1  # rows, logs, flow books, the dead set itself
    assert all(gone[key] == before[key] for key in gone if key != q.keys.dead)
    assert len(open_deaths(ledger)) == len(known) - 500
    back = undo_run(server, report.run or "", ledger, options=ActOptions(rate=100_000))
    assert (back.selected, back.done, back.left) == (500, 500, {})
    assert without_lease(dump(server)) == before
    assert open_deaths(ledger) == known
    again = undo_run(server, report.run or "", ledger)
    assert (again.selected, again.done) == (0, 0)


def test_undo_leaves_alone_who_lives(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    dead = seed(q, 4)
    report = act(server, acts.REMOVE, choose(server, "orders", DeadSelection()), ledger)
    enqueue.enqueue(q, dead[2], b"anew")
    back = undo_run(server, report.run or "", ledger)
    assert (back.done, back.left) == (3, {"exists": 1})
    assert jobs.read_row(q, dead[2]) == {b"state": b"pending", b"attempts": b"0", b"payload": b"anew"}
    jobs.remove(q, dead[2])
    assert undo_run(server, report.run or "", ledger).done == 1


def test_refused(server: Server, ledger: Ledger, tmp_path: Path) -> None:
    q = Queue(server, "orders")
    with pytest.raises(EmptySelectionError):
        choose(server, "orders", DeadSelection())
    die(q)
    with pytest.raises(EmptySelectionError):
        choose(server, "orders", DeadSelection(causes=("stalled",)))
    chosen = choose(server, "orders", DeadSelection())
    before = dump(server)
    for rate in (0, -1):
        with pytest.raises(BadInputError):
            act(server, acts.REMOVE, chosen, ledger, ActOptions(rate=rate))
    with pytest.raises(BadInputError):
        act(server, "bury", chosen, ledger)
    with pytest.raises(ProtectedError):
        act(server, acts.REMOVE, chosen, ledger, ActOptions(protect=True))
    assert [(run.kind, run.status) for run in runs.latest(ledger)] == [("remove", "refused")]
    assert dump(server) == before
    with open_ledger(f"sqlite:///{tmp_path}/other.db") as other:
        leadership = QueueLease(server, other, "orders")
        leadership.acquire()
        leadership.release()
    with pytest.raises(ForeignQueueError):
        act(server, acts.REQUEUE, chosen, ledger)
    assert act(server, acts.REQUEUE, chosen, open_ledger(f"sqlite:///{tmp_path}/other.db")).done == 1


def test_the_rate_is_a_bound(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    seed(q, 12)
    start = time.monotonic()
    act(server, acts.REQUEUE, choose(server, "orders", DeadSelection()), ledger, ActOptions(rate=40))
    assert time.monotonic() - start >= 2 / 40  # the second slice of ten waits for the first


def test_rehydrate(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    dead = seed(q, 6)
    see(server, ledger)
    before = without_lease(dump(server))
    act(server, acts.REMOVE, choose(server, "orders", DeadSelection(jobs=(dead[0], dead[1]))), ledger)
    jobs.remove(q, dead[2])  # by others; its death in the ledger has the row and the logs
    stranger = ids.mint()
    report = rehydrate_jobs(server, "orders", [*dead[:4], stranger], ledger)
    assert sorted(report.done_jobs) == dead[:3]
    assert report.left == {"exists": 1, "lost": 1}
    assert {job for job, _ in open_deaths(ledger)} == set(dead)
    assert without_lease(dump(server)) == before
    act(server, acts.REMOVE, choose(server, "orders", DeadSelection(jobs=(dead[0],))), ledger)
    report = rehydrate_jobs(server, "orders", [dead[0]], ledger, requeue=True)
    assert report.done == 1
    row = jobs.read_row(q, dead[0])
    assert row is not None
    assert (row[b"state"], row[b"attempts"]) == (b"pending", b"1")
    assert violations(server, "orders") == []
    with pytest.raises(BadInputError):
        rehydrate_jobs(server, "orders", [], ledger)
    with pytest.raises(BadInputError):
        rehydrate_jobs(server, "orders", ["job 5"], ledger)


def test_acts_while_the_queue_works(server: Server, ledger: Ledger) -> None:
    """A sweep and claims beside a requeue: what is requeued is claimed at once, and dies again."""
    q = Queue(server, "orders")
    seed(q, 30)
    chosen = choose(server, "orders", DeadSelection())
    report = act(server, acts.REQUEUE, chosen, ledger, ActOptions(rate=100_000, slice_size=5))
    while (claim := claims.claim(q, 1)) is not None:
        assert claim.token == 2
    while (lane := claims.claim_lane(q, 1)) is not None:
        assert lane.token == 2
    assert report.done == 30
    died: list[str] = []
    until = time.monotonic() + 10
    while len(died) < 30 and time.monotonic() < until:
        died += recover.sweep(q).dead
    assert sorted(died) == sorted(report.done_jobs)
    assert act(server, acts.REMOVE, choose(server, "orders", DeadSelection(causes=("stalled",))), ledger).done == 30


def test_an_undo_that_was_cut_off_tells_what_all_its_lives_brought_back(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    for _ in range(6):
        die(q)
    removal = act(server, acts.REMOVE, choose(server, "orders", DeadSelection()), ledger)
    assert removal.done == 6

    class CutError(Exception):
        pass

    slices: list[float] = []

    def cut(seconds: float) -> None:
        slices.append(seconds)
        if len(slices) == 3:
            raise CutError

    with pytest.raises(CutError):
        undo_run(server, removal.run or "", ledger, options=ActOptions(rate=1, slice_size=1, sleep=cut))
    [begun] = runs.latest(ledger, kind=acts.UNDO)
    with ledger.write() as connection:
        runs.finish(connection, begun.id, runs.INTERRUPTED)
    back = undo_run(server, removal.run or "", ledger)
    assert (back.run, back.selected, back.done) == (begun.id, 6, 6)
    assert runs.get(ledger, begun.id).counts == {"selected": 6, "done": 6}


def test_a_requeue_beside_a_key_of_another_type_names_the_key(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    seed(q)
    see(server, ledger)
    server.write("UNLINK", q.keys.pending)
    server.write("SET", q.keys.pending, "x")
    before = dump(server)
    chosen = choose(server, "orders", DeadSelection(), ledger)
    with pytest.raises(DamagedError, match="pending is a string"):
        act(server, acts.REQUEUE, chosen, ledger, ActOptions())
    assert without_lease(dump(server)) == without_lease(before)
