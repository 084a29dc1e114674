"""Acts go through the frame as every pass does: a hold, `protect` and another state's queue refuse them, in one row; a
leader beside them and a maintenance window do not; what is cut off in the middle is one run, and one undo."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger import acts, holds, runs
from emq_ops.ledger.holds import Hold, Window
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.acts.act import act, resume
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.acts.undo import rehydrate_jobs, undo_run
from emq_ops.passes.acts.waiting import WaitingSelection, WaitingSet
from emq_ops.passes.frame.refusal import OnHoldError, ProtectedError
from emq_ops.passes.lease.holder import DAEMON
from emq_ops.passes.lease.owner import ForeignQueueError
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.passes.registry import EVERY, by_name
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from tests.support.daemons import site
from tests.support.keyspace import dump
from tests.support.passing import add, dead_of, kill_row
from tests.support.proxy import RespProxy, scripted
from tests.support.valkey import Valkey

COUNT = 4


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "mail")


class Desk:
    """A queue with dead jobs, jobs that a run `removal` took away, and a door to each act on them."""

    def __init__(self, q: Queue, ledger: Ledger) -> None:
        self.server, self.q, self.ledger = q.server, q, ledger
        self.gone = kill_row(q, COUNT)
        self.removal = self.remove().run or ""
        self.dead = kill_row(q, COUNT)
        self.waiting = add(q, COUNT // 2) + add(q, COUNT // 2, group=mint("GRP"))

    def options(self, **more: Any) -> ActOptions:
        return ActOptions(**{"rate": 100_000, "slice_size": 2, **more})

    def selected(self, kind: str, **more: Any) -> ActReport:
        targets = choose(self.server, "mail", DeadSelection())
        return act(self.server, kind, targets, self.ledger, self.options(**more))

    def requeue(self, **more: Any) -> ActReport:
        return self.selected(acts.REQUEUE, **more)

    def remove(self, **more: Any) -> ActReport:
        return self.selected(acts.REMOVE, **more)

    def drain(self, **more: Any) -> ActReport:
        return self.taken(acts.DRAIN, **more)

    def move(self, **more: Any) -> ActReport:
        return self.taken(acts.MOVE, to=("post", ""), **more)

    def taken(self, kind: str, **more: Any) -> ActReport:
        targets = WaitingSet(self.server, "mail", WaitingSelection(jobs=tuple(self.waiting))).targets()
        return act(self.server, kind, targets, self.ledger, self.options(**more))

    def undo(self, **more: Any) -> ActReport:
        return undo_run(self.server, self.removal, self.ledger, options=self.options(**more))

    def rehydrate(self, **more: Any) -> ActReport:
        return rehydrate_jobs(self.server, "mail", self.gone, self.ledger, options=self.options(**more))

    def door(self, name: str) -> Callable[..., ActReport]:
        found: Callable[..., ActReport] = getattr(self, name)
        return found

    def hold(self, ms: int = 3_600_000) -> None:
        now = self.server.now_ms("mail")
        holds.hold(self.ledger, Hold("mail", now, now + ms, "ann"))

    def refusals(self) -> list[tuple[str, int, str]]:
        """Of each act its row of refusals: how often, and why."""
        found = [run for run in runs.latest(self.ledger) if run.status == runs.REFUSED]
        return [(run.kind, run.counts.get("times", 1), run.error or "") for run in found]

    def fails(self, name: str, kind: type[EmqError], **more: Any) -> None:
        before = dump(self.server)
        for _ in range(2):
            with pytest.raises(kind):
                self.door(name)(**more)
        assert dump(self.server) == before


@pytest.fixture
def desk(q: Queue, ledger: Ledger) -> Desk:
    return Desk(q, ledger)


ACTS = [one.name for one in EVERY if one.on_demand and not one.sets and one.name not in (acts.EDIT, "obliterate")]
"""Those on many jobs. An edit is of one: test_batch.py."""
every_act = pytest.mark.parametrize("name", ACTS)


@every_act
def test_a_held_queue_is_left_alone(desk: Desk, name: str) -> None:
    desk.hold()
    desk.fails(name, OnHoldError)
    assert desk.refusals() == [(name, 2, "held by ann")]
    holds.release(desk.ledger, "mail")
    assert desk.door(name)().done == COUNT


@every_act
def test_a_protected_queue_loses_nothing(desk: Desk, name: str) -> None:
    what = by_name(name)
    assert what is not None
    if what.protected == "refused":
        desk.fails(name, ProtectedError, protect=True)
        assert [(kind, times) for kind, times, _ in desk.refusals()] == [(name, 2)]
    else:
        assert desk.door(name)(protect=True).done == COUNT
    assert len(dead_of(desk.q)) >= (0 if name == acts.REQUEUE else COUNT)


@every_act
def test_a_queue_of_another_state_is_left_alone(desk: Desk, tmp_path: Path, name: str) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/other.db") as other:
        QueueLease(desk.server, other, "mail", lease_ms=60_000).try_acquire(disown=desk.ledger.state)
    desk.fails(name, ForeignQueueError)
    [(kind, times, why)] = desk.refusals()
    assert (kind, times, "belongs to state" in why) == (name, 2, True)


@every_act
def test_it_works_at_once_beside_a_leader_and_in_a_maintenance_window(desk: Desk, name: str) -> None:
    """An act takes no lease: each of its scripts checks every job for itself. Windows are about lapsed leases."""
    now = desk.server.now_ms("mail")
    holds.open_window(desk.ledger, Window("*", now, now + 3_600_000))
    QueueLease(desk.server, desk.ledger, "mail", role=DAEMON, lease_ms=60_000).acquire()
    lease = dump(desk.server)[desk.q.keys.lease]
    begun = time.monotonic()
    assert desk.door(name)().done == COUNT
    assert time.monotonic() - begun < 9.0  # nobody waited the ten seconds for a lease
    assert dump(desk.server)[desk.q.keys.lease] == lease


@every_act
def test_held_in_the_middle_it_stops_and_goes_on_as_one_run(desk: Desk, name: str) -> None:
    slices: list[float] = []

    def hold(_seconds: float) -> None:
        slices.append(_seconds)
        if len(slices) == 2:
            desk.hold()

    with pytest.raises(OnHoldError):
        desk.door(name)(rate=1, slice_size=1, sleep=hold)
    [cut] = [run for run in runs.latest(desk.ledger, kind=name) if run.id != desk.removal]
    assert (cut.status, cut.error) == (runs.INTERRUPTED, "held by ann")
    assert 0 < cut.counts["done"] < COUNT
    holds.release(desk.ledger, "mail")
    if name == acts.REHYDRATE:  # asked again, it leaves alone what is back
        assert desk.rehydrate().done == COUNT - cut.counts["done"]
        return
    report = desk.undo() if name == acts.UNDO else resume(desk.server, cut.id, desk.ledger, desk.options())
    assert (report.run, report.selected, report.done) == (cut.id, COUNT, COUNT)
    assert runs.get(desk.ledger, cut.id).counts == {"selected": COUNT, "done": COUNT}
    with pytest.raises(BadInputError):
        resume(desk.server, cut.id, desk.ledger)
    if name == acts.REMOVE:
        assert undo_run(desk.server, cut.id, desk.ledger).done == COUNT
        assert dead_of(desk.q) == sorted(desk.dead)


@every_act
def test_when_the_time_is_up_no_slice_is_begun(desk: Desk, name: str) -> None:
    slices: list[float] = []

    def hasten(seconds: float) -> None:
        slices.append(seconds)
        if len(slices) == 2:
            deadline.end_by(0.9)  # less than the second that a pass keeps for saying how it ended

    try:
        with deadline.deadline(60.0):
            report = desk.door(name)(rate=1, slice_size=1, sleep=hasten)
    finally:
        deadline.end_by(None)
    assert (report.more, report.done) == (True, 2)
    assert "the time ran out" in report.notes[-1]
    cut = runs.get(desk.ledger, report.run or "")
    assert (cut.status, cut.counts["done"]) == (runs.INTERRUPTED, 2)


WRITES = scripted("act_requeue", "act_remove", "act_restore", "act_drain")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=[] if (name, kind) == (acts.REMOVE, "cut_after") else pytest.mark.soak)
        for name in ACTS
        for kind in ("cut_before", "cut_after")
    ],
)
def test_a_lost_reply_is_looked_into_and_the_run_goes_on(
    valkey: Valkey, server: Server, ledger: Ledger, name: str, kind: str
) -> None:
    """At each write in turn: one run tells what the whole call did, and nothing was done twice."""
    at = 0
    while True:
        at += 1
        server.write("FLUSHALL")
        desk = Desk(Queue(server, "mail"), ledger)
        with RespProxy(valkey.url) as proxy, connect(proxy.url) as ours:
            desk.server = ours
            fault = proxy.arm(kind, at=at, match=lambda r: WRITES(r) or r.name == "UNLINK")
            report = desk.door(name)()
        assert (report.selected, report.done, report.left) == (COUNT, COUNT, {}), at
        found = runs.get(ledger, report.run or "")
        assert (found.status, found.counts) == (runs.DONE, {"selected": COUNT, "done": COUNT}), at
        wanted = {acts.REQUEUE: [], acts.REMOVE: [], acts.DRAIN: desk.dead, acts.MOVE: desk.dead}.get(
            name, [*desk.gone, *desk.dead]
        )
        assert dead_of(desk.q) == sorted(wanted)
        assert not any(":acted" in key or ":grave" in key or ":landed" in key for key in dump(server))
        if not fault.fired:
            break
    assert at > 3


CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
queues:
  mail:
    stalled: {{every: 200ms}}
    dead: {{every: 1h, keep: 100, archive: false}}
"""


def test_the_commands_beside_a_daemon_that_leads(valkey: Valkey, server: Server, q: Queue, tmp_path: Path) -> None:
    dead = kill_row(q, 4)
    with site(tmp_path / "s", CONFIG.format(socket=valkey.socket)) as here:
        here.run("apply", "--yes", "--allow-loss")
        here.up()
        token = server.read("HGET", q.keys.lease, "token")
        here.run("audit", "dead", "mail", "--job", dead[0], "--requeue", "--yes")
        assert dead_of(q) == dead[1:]
        run = here.json("audit", "dead", "mail", "--job", dead[1], "--remove", "--yes")["acts"][0]["run"]
        here.run("undo", run)
        assert dead_of(q) == dead[1:]
        here.run("hold", "mail", "--for", "1h")
        for words in (("audit", "dead", "mail", "--remove", "--yes"), ("undo", run)):
            ran = here.run(*words, code=1)
            assert "mail: held by " in ran.err
            assert "emq-ops release mail" in ran.err
        assert dead_of(q) == dead[1:]
        assert server.read("HGET", q.keys.lease, "token") == token
