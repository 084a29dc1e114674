"""The reply of every write of a scenario with each transition is lost in turn.

Nothing happens twice, and the caller learns "done" or OutcomeUnknownError, never a false "nothing to do".
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from emq_ops.protocol import scripts, transitions
from emq_ops.protocol.errors import OutcomeUnknownError
from emq_ops.protocol.ids import Minter
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import ConnectionOptions, Server, connect
from emq_ops.protocol.transitions import (
    aside,
    cancel,
    claims,
    control,
    enqueue,
    flows,
    jobs,
    lanes,
    leases,
    recover,
    repeat,
    settle,
    streams,
)
from tests.support.keyspace import dump
from tests.support.proxy import Fault, RespProxy, scripted
from tests.support.valkey import Valkey

LEASE = 3_600_000
_minter = Minter(node=1, clock=lambda: 1_790_000_000_000)
A, B, C, D, E, F, G, H, M1, M2, M3, R1, L1, P1, P2, W1, W2, T1, T2 = (_minter.mint("JOB") for _ in range(19))
LANE, LANE2 = (_minter.mint("GRP") for _ in range(2))
AT_AN_INSTANT = {"stream_append", "stream_bury", "stream_keep"}
"""Their ids, or the idle times that they write, are of the instant: no two runs end alike."""
FAILURE = settle.Failure(b"boom", delay_ms=0, max_attempts=2)
ERASE = "-"
"""In place of an instant: what differs from run to run."""


def lapse(q: Queue) -> None:
    """Waits until leases of 1 ms have lapsed and what was due at once is due, by the server's clock."""
    start = q.server.now_ms(q.name)
    deadline = time.monotonic() + 20
    while q.server.now_ms(q.name) <= start + 3:
        assert time.monotonic() < deadline


STEPS: list[tuple[str, Callable[[Queue], Any]]] = [
    ("", lambda q: q.server.write("ZADD", q.keys.pending, 0, A)),
    ("set aside what has no row", lambda q: claims.claim(q, LEASE)),
    ("", lambda q: q.server.write("ZREM", q.keys.pending, A)),
    ("forget what was mended", lambda q: aside.tidy(q)),
    ("enqueue", lambda q: enqueue.enqueue(q, A, b"a")),
    ("enqueue again", lambda q: enqueue.enqueue(q, A, b"x")),
    ("enqueue in a lane", lambda q: enqueue.enqueue(q, B, b"b", group=LANE)),
    ("enqueue many", lambda q: enqueue.enqueue_many(q, [enqueue.NewJob(job, b"m") for job in (M1, M2, M3)])),
    ("schedule in", lambda q: enqueue.schedule_in(q, C, b"c", 1)),
    ("schedule at", lambda q: enqueue.schedule_at(q, D, b"d", 1_790_000_000_000)),
    ("claim", lambda q: claims.claim(q, LEASE)),
    ("claim from a lane", lambda q: claims.claim_lane(q, LEASE)),
    ("claim a batch", lambda q: claims.claim_batch(q, 1, 2)),
    ("track a lock", lambda q: q.run("lock_track", [q.keys.row(A), q.keys.book(A, "lock")], 1, 2 * LEASE)),
    ("renew it", lambda q: q.run("lock_beat", [q.keys.active], q.keys.base, LEASE, A, 1)),
    ("untrack it", lambda q: q.run("lock_untrack", [q.keys.row(A), q.keys.book(A, "lock")], 1)),
    ("extend", lambda q: leases.extend(q, A, 1, LEASE)),
    ("extend many", lambda q: leases.extend_many(q, [(A, 1), (B, 1), (C, 7)], LEASE)),
    ("keep", lambda q: leases.keep(q, [(A, 1), (C, 7)], LEASE)),
    ("", lapse),
    ("reap a lane", lambda q: recover.reap_lane(q, LANE)),
    ("reap", lambda q: recover.reap(q)),
    ("claim once more", lambda q: claims.claim_batch(q, 1, 2)),
    ("", lapse),
    ("sweep", lambda q: recover.sweep(q, 2)),
    ("promote", lambda q: recover.promote(q)),
    ("complete", lambda q: settle.complete(q, A, 1)),
    ("complete again", lambda q: settle.complete(q, A, 1)),
    ("retry", lambda q: settle.retry(q, B, 1, FAILURE)),
    ("", lapse),
    ("promote into a lane", lambda q: recover.promote(q)),
    ("claim from a lane again", lambda q: claims.claim_lane(q, LEASE)),
    ("retry the last time", lambda q: settle.retry(q, B, 2, FAILURE)),
    ("reprocess", lambda q: jobs.reprocess(q, B)),
    ("claim for another death", lambda q: claims.claim_lane(q, LEASE)),
    ("die", lambda q: settle.retry(q, B, 3, FAILURE)),
    ("requeue", lambda q: jobs.requeue(q, B)),
    ("update the payload", lambda q: jobs.update_payload(q, B, b"new")),
    ("update the progress", lambda q: jobs.update_progress(q, B, b"50")),
    ("log", lambda q: jobs.add_log(q, B, b"a line")),
    ("log bounded", lambda q: jobs.add_log(q, B, b"another", keep=1)),
    ("pause a lane", lambda q: control.pause_lane(q, LANE)),
    ("resume a lane", lambda q: control.resume_lane(q, LANE)),
    ("limit a lane", lambda q: control.limit_lane(q, LANE, 3)),
    ("weigh a lane", lambda q: control.weight_lane(q, LANE, 2)),
    ("ceiling", lambda q: control.set_concurrency(q, 50)),
    ("cancel one that waits", lambda q: cancel.request(q, M1)),
    ("remove", lambda q: jobs.remove(q, M2)),
    ("register a repeatable", lambda q: repeat.register(q, "tick", 3_600_000, b"t", first_in_ms=0)),
    ("", lapse),
    ("advance it", lambda q: repeat.advance(q, "tick", R1)),
    ("replace it", lambda q: repeat.replace(q, "tick", 60_000, b"u")),
    ("cancel it", lambda q: repeat.cancel(q, "tick")),
    ("register another", lambda q: repeat.register(q, "tock", 3_600_000, b"t", first_in_ms=0)),
    ("skip it", lambda q: repeat.skip(q, "tock", 60_000)),
    ("enqueue in a lane to move it", lambda q: enqueue.enqueue(q, L1, b"l", group=LANE)),
    ("reassign", lambda q: lanes.reassign(q, L1, LANE2)),
    ("claim a turn of a lane", lambda q: claims.claim_lane_turn(q, LEASE, weighted=True)),
    ("claim what is left in lanes again", lambda q: claims.claim_lane_batch(q, LEASE, 50)),
    ("delay", lambda q: settle.delay_in(q, L1, 1, LEASE)),
    ("add a flow", lambda q: flows.add(q, flows.FlowJob(P1, b"p", children=(flows.FlowJob(P2, b"c"),)))),
    ("add it again", lambda q: flows.add(q, flows.FlowJob(P1, b"p", children=(flows.FlowJob(P2, b"c"),)))),
    ("tell a parent", lambda q: flows.tell(q, P2)),
    ("claim the child", lambda q: claims.claim_batch(q, LEASE, 50)),
    ("a child is done", lambda q: settle.complete(q, P2, 1, result=b"r")),
    (
        "its parent hears of one elsewhere",
        lambda q: q.run("flow_hear", [q.keys.row(P1)], q.keys.base, P1, M3, "fp", "e"),
    ),
    ("enqueue two", lambda q: enqueue.enqueue_many(q, [enqueue.NewJob(job, b"t") for job in (T1, T2)])),
    ("claim them", lambda q: claims.claim_batch(q, LEASE, 50)),
    ("complete both", lambda q: settle.settle_many(q, [settle.to_complete(q, job, 1) for job in (T1, T2)])),
    ("", lambda q: [q.server.write("XADD", q.keys.stream("kept"), f"{n}-0", "a", "b") for n in range(1, 4)]),
    ("retain", lambda q: streams.retain(q, "kept", keep=1).removed),
    ("a signal", lambda q: q.server.write("RPUSH", q.keys.outbox, "signal")),
    ("it is set aside", lambda q: q.run("outbox_settle", [q.keys.outbox, q.keys.outbox_aside], "signal", "why")),
    ("enqueue what waits", lambda q: enqueue.enqueue(q, W1, b"w")),
    ("enqueue with a key", lambda q: enqueue.put(q, enqueue.NewJob(W2, b"w", dedup=enqueue.Dedup("k")))),
    ("enqueue to drain", lambda q: enqueue.enqueue(q, E, b"e", group=LANE)),
    ("drain a lane", lambda q: control.drain_lane(q, LANE)),
    ("drain what waits", lambda q: control.drain(q)),
    ("schedule to drain", lambda q: enqueue.schedule_in(q, F, b"f", LEASE)),
    ("drain", lambda q: control.drain(q, include_schedule=True)),
    ("enqueue to obliterate", lambda q: enqueue.enqueue(q, G, b"g")),
    ("claim to obliterate", lambda q: claims.claim(q, LEASE)),
    ("enqueue more", lambda q: enqueue.enqueue(q, H, b"h")),
    ("pause", lambda q: control.pause_queue(q)),
    ("resume", lambda q: control.resume_queue(q)),
    ("pause to obliterate", lambda q: control.pause_queue(q)),
    ("obliterate a little, to do it again", lambda q: control.obliterate(q, force=True, budget=1)),
    ("obliterate", lambda q: control.obliterate(q, force=True)),
]


def timeless(value: Any) -> Any:
    """`value` without the instants in it."""
    if isinstance(value, dict):
        return {key: timeless(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [timeless(content) for content in value]
    if isinstance(value, int | float) and value > 1e12:
        return ERASE
    if isinstance(value, bytes) and len(value) == 13 and value.isdigit():
        return ERASE
    if isinstance(value, claims.Claim):
        return (value.job, value.payload, value.token, value.group)
    return value


@dataclass(frozen=True)
class Moment:
    """A step in a run without faults: its name, what it does, what it answered, the keyspace before it (to be put back)
    and the keyspace after it (to be compared)."""

    name: str
    step: Callable[[Queue], Any]
    answer: Any
    before: dict[bytes, bytes]
    after: Any


def photograph(admin: redis.Redis) -> dict[bytes, bytes]:
    return {key: admin.dump(key) for key in admin.scan_iter(count=1000)}  # type: ignore[misc]  # of a sync client


def put_back(admin: redis.Redis, picture: dict[bytes, bytes]) -> None:
    """That keyspace, and no script loaded: each first call of a transition takes two requests."""
    pipe = admin.pipeline(transaction=False)
    pipe.flushall()
    pipe.script_flush()
    for key, content in picture.items():
        pipe.restore(key, 0, content)
    pipe.execute()


@pytest.fixture(scope="module")
def course(valkey: Valkey) -> list[Moment]:
    moments = []
    with connect(valkey.url) as server, RespProxy(valkey.url) as proxy, connect(proxy.url) as ours:
        with valkey.client() as admin:
            put_back(admin, {})
            q = Queue(ours, "orders")
            for name, step in STEPS:
                before = photograph(admin)
                answer = timeless(step(q))
                moments.append(Moment(name, step, answer, before, timeless(dump(server))))
        used = {name for name in scripts.names() if proxy.count(scripted(name))}
        assert transitions_in_code() - used == set(), "transitions that this scenario leaves out"
    return [moment for moment in moments if moment.name]


def transitions_in_code() -> set[str]:
    """The scripts that the typed callers name, but for those that only read or want a module."""
    named = set()
    for path in Path(transitions.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        named |= {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
    return (named & set(scripts.names())) - {"job_state", "repeat_due", "keep_native"} - AT_AN_INSTANT


def test_the_scenario_does_something_at_every_step(course: list[Moment]) -> None:
    idle = {m.name for m in course if m.answer in (False, 0, []) and not m.name.endswith("again")}
    # Nothing lapsed in that lane; it was there to be replaced; no lease was lost.
    assert idle == {"reap a lane", "replace it", "renew it", "tell a parent"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "happened"), [("cut_after", True), ("half_reply", True), ("drop_reply", True), ("cut_before", False)]
)
def test_at_every_write(valkey: Valkey, server: Server, course: list[Moment], kind: str, happened: bool) -> None:
    options = ConnectionOptions(socket_timeout=0.2 if kind == "drop_reply" else 10)
    # A silent server takes its time-out each time; a third of the steps tells as much there.
    moments = course[::3] if kind == "drop_reply" else course
    harmed = 0
    with RespProxy(valkey.url) as proxy, connect(proxy.url, options) as ours, valkey.client() as admin:
        for moment in moments:
            for k in range(1, 100):
                put_back(admin, moment.before)
                fault = proxy.arm(kind, at=k)
                if not harm(server, Queue(ours, "orders"), moment, fault, happened):
                    break
                harmed += 1
                proxy.disarm()
            proxy.disarm()
    assert harmed >= 2 * len(moments)


def harm(server: Server, q: Queue, moment: Moment, fault: Fault, happened: bool) -> bool:
    """Takes one step, looks as a caller would, and does again what did not happen. False: the fault came too late."""
    before = timeless(dump(server))
    try:
        answer = timeless(moment.step(q))
    except OutcomeUnknownError:
        now = timeless(dump(server))
        assert now in (before, moment.after), f"{moment.name} happened by half, or twice"
        if not happened:
            assert now == before, f"{moment.name} was sent again"
        if now == before:
            again = timeless(moment.step(q))
            # What changes nothing that can be compared (an extended lease) may have happened all the same.
            assert again == moment.answer or moment.after == before
    else:
        unknown = [n for n, each in enumerate(answer) if isinstance(each, OutcomeUnknownError)] if fault.fired else []
        if not unknown:
            assert answer == moment.answer
            assert not fault.fired, f"{moment.name} answered {answer!r} though a reply of it was lost"
        else:
            known = [each for each in answer if not isinstance(each, OutcomeUnknownError)]
            assert known == [each for n, each in enumerate(moment.answer) if n not in unknown]
            moment.step(q)
    assert timeless(dump(server)) == moment.after, f"after {moment.name}"
    return fault.fired == 1
