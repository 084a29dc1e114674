"""Waiting jobs go to another queue or lane, whole and in order; killed anywhere and taken up again; and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.acts.act import act, resume
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.undo import preview_undo, undo_run
from emq_ops.passes.acts.waiting import SCHEDULED, WAITING, WaitingSelection, WaitingSet
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, jobs
from tests.support.invariants import violations
from tests.support.keyspace import dump
from tests.support.passing import add
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

LANE, OTHER = ids.mint("GRP"), ids.mint("GRP")


def wire(server: Server) -> dict[str, Any]:
    return {key: value for key, value in dump(server).items() if key.startswith("emq:") and not key.endswith("}:wake")}


def fill(q: Queue) -> None:
    add(q, 3, payload=b"\x00\xff")
    add(q, 3, group=LANE)
    enqueue.schedule_in(q, ids.mint(), b"later", 3_600_000)
    jobs.add_log(q, add(q)[0], b"a line")


def move(server: Server, ledger: Ledger, to: tuple[str, str], queue: str = "orders") -> ActReport:
    found = WaitingSet(server, queue, WaitingSelection((WAITING, SCHEDULED))).targets()
    return act(server, acts.MOVE, found, ledger, ActOptions(100_000, slice_size=3, to=to))


@pytest.mark.parametrize("to", [("mail", ""), ("mail", OTHER), ("orders", OTHER)])
def test_they_are_there_whole_and_come_back(server: Server, ledger: Ledger, to: tuple[str, str]) -> None:
    q, there = Queue(server, "orders"), Queue(server, to[0])
    fill(q)
    before = wire(server)
    report = move(server, ledger, to)
    assert (report.selected, report.done, report.left) == (8, 8, {})
    assert violations(server, "orders") == violations(server, "mail") == []
    rows = {
        key.rpartition(":")[2]: value["hash"] for key, value in before.items() if ":job:JOB" in key and "hash" in value
    }
    for job, row in rows.items():
        moved = {**row, b"group": to[1].encode()} if to[1] else row
        assert jobs.read_row(there, job) == moved
    if to[0] == "mail":
        assert not any(key.startswith("emq:{orders}") for key in wire(server))
        assert wire(server)["emq:{mail}:schedule"] == before["emq:{orders}:schedule"]
    lane = to[1] or LANE
    taken = [claim.job for claim in claims.claim_lane_batch(there, 60_000, 2)]
    assert taken == sorted(job for job, row in rows.items() if to[1] or row.get(b"group"))[:2], lane
    back = undo_run(server, report.run or "", ledger)
    assert (back.done, back.left) == (6, {"changed": 2})
    for claim in taken:
        assert jobs.read_row(there, claim) is not None
    assert violations(server, "orders") == violations(server, "mail") == []
    for job in set(rows) - set(taken):
        assert jobs.read_row(q, job) == rows[job]


def test_one_that_cant_stand_there_stays_where_it_was(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    fill(q)
    twin = str(server.read("ZRANGE", q.keys.pending, 0, 0)[0], "ascii")
    enqueue.enqueue(Queue(server, "mail"), twin, b"mine")
    report = move(server, ledger, ("mail", ""))
    assert (report.done, report.left) == (7, {"exists": 1})
    assert (jobs.read_row(q, twin) or {})[b"payload"] == b"\x00\xff"
    assert (jobs.read_row(Queue(server, "mail"), twin) or {})[b"payload"] == b"mine"
    assert preview_undo(ledger, report.run or "").selected == 7
    assert undo_run(server, report.run or "", ledger).done == 7


@pytest.mark.parametrize("what", ["move", "undo"])
def test_killed_at_any_commit_and_gone_on_with(
    valkey: Valkey, server: Server, zygote: Zygote, tmp_path: Path, what: str
) -> None:
    q, state = Queue(server, "orders"), f"sqlite:///{tmp_path}/state.db"
    open_ledger(state).close()
    spec: dict[str, Any] = {"url": valkey.url, "state": state, "lane": OTHER}
    fill(q)
    before, kill, killed, last = wire(server), 1, 0, ""
    while True:
        if what == "undo":
            with open_ledger(state) as ledger:
                spec["run"] = move(server, ledger, ("mail", OTHER)).run
        ended = zygote.start("tests.passes.acts.run_act", what=what, kill=["commit", "before", kill], **spec)
        done = ended.wait() == 0
        killed += not done
        with open_ledger(state) as ledger:
            if what == "move":
                found = runs.latest(ledger, kind=acts.MOVE, limit=1)
                if found and found[0].id != last and found[0].slices:  # else nothing was touched
                    last = found[0].id
                    if found[0].status != runs.DONE:
                        resume(server, last, ledger)
                    assert not any(key.startswith("emq:{orders}:job") for key in wire(server))
                    undo_run(server, last, ledger)
            else:
                undo_run(server, spec["run"], ledger)
        assert wire(server) == before
        assert not [key for key in dump(server) if "acted" in key or "landed" in key or "grave" in key]
        if done:
            break
        kill += 1
    assert killed > 5
