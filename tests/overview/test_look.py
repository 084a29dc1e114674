"""One look at many queues: exact where the server counts, bounded elsewhere, whole though one of them is damaged."""

from __future__ import annotations

import pytest

from emq_ops.ledger import holds
from emq_ops.ledger.holds import Hold
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview import look
from emq_ops.overview.look import QueueLook, live_queues, look_at_queues
from emq_ops.overview.overview import QueueStanding, standings
from emq_ops.protocol import ids
from emq_ops.protocol.connection.dispatch import CommandDispatcher
from emq_ops.protocol.errors import UnreachableError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import control
from emq_ops.protocol.transitions.enqueue import schedule_in
from tests.passes.acts.seeding import die
from tests.support.passing import add, take
from tests.support.valkey import Valkey


def one(server: Server, queue: str = "orders", **more: list[str]) -> QueueLook:
    [found] = look_at_queues(server, [queue], more)
    assert isinstance(found, QueueLook)
    return found


def test_what_is_told_of_a_queue(server: Server) -> None:
    q, groups = Queue(server, "orders"), sorted(ids.mint("GRP") for _ in range(3))
    die(q)
    in_lanes = [add(q, 2, group=group) for group in groups]
    [first, *_] = add(q, 3)
    take(q, 2, 3_600_000)
    take(q, lane=True, lease_ms=3_600_000)
    schedule_in(q, ids.mint(), b"x", 60_000)
    control.pause_lane(q, groups[2])
    control.limit_lane(q, groups[0], 1)
    control.set_concurrency(q, 7)
    server.write("HSET", q.keys.aside, "JOB5", "pending: no id")
    server.write("ZADD", q.keys.repeat, 1_796_000_000_000, "nightly")
    seen = one(server)
    assert (seen.pending, seen.in_lanes, seen.active, seen.scheduled, seen.dead) == (1, 5, 3, 1, 1)
    assert (seen.waiting, seen.lanes, seen.lanes_full, seen.lanes_paused) == (6, 3, 1, 1)
    assert (seen.paused, seen.ceiling, seen.rate, seen.aside) == (False, 7, None, 1)
    assert (seen.repeat, seen.repeat_ms, seen.more_lanes, seen.damage) == ("nightly", 1_796_000_000_000, False, ())
    assert seen.oldest_lane_ms == ids.parse(in_lanes[0][1]).unix_ms
    assert seen.oldest_flat_ms is not None
    assert seen.oldest_flat_ms >= ids.parse(first).unix_ms
    assert seen.oldest_ms == seen.oldest_lane_ms
    assert seen.deadline_ms is not None
    assert seen.due_ms is not None
    assert seen.now_ms < seen.due_ms < seen.deadline_ms
    control.pause_queue(q)
    server.write("ZADD", q.keys.active, "XX", seen.now_ms - 1, server.read("ZRANGE", q.keys.active, 0, 0)[0])
    assert (one(server).paused, one(server).lapsed) == (True, 1)


def test_lanes_are_looked_at_up_to_a_bound(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "MOST_LANES", 4)
    q = Queue(server, "orders")
    for _ in range(6):
        add(q, 2, group=ids.mint("GRP"))
    seen = one(server)
    assert (seen.more_lanes, seen.lanes, seen.in_lanes) == (True, 4, 8)


def test_a_damaged_queue_hides_no_other(server: Server) -> None:
    broken, fine = Queue(server, "broken"), Queue(server, "fine")
    add(broken, 2)
    add(fine)
    server.write("SET", broken.keys.dead, "not a set")
    server.write("SET", broken.keys.stream("completions"), "not a stream")
    first, second = look_at_queues(server, ["broken", "fine"])
    assert isinstance(first, QueueLook)
    assert isinstance(second, QueueLook)
    assert (first.pending, first.dead, len(first.damage)) == (2, 0, 2)
    assert "emq:{broken}:dead is a string, not a zset" in first.damage
    assert (second.pending, second.damage) == (1, ())


def test_how_far_the_archive_is_behind(server: Server) -> None:
    q, event = Queue(server, "orders"), ids.mint("EVT")
    at = ids.parse(event).unix_ms
    server.write("XADD", q.keys.stream("audit"), f"{at + 5000}-0", "id", ids.mint("EVT"))
    assert one(server, orders=["audit"]).lag_ms is None  # nobody archives it
    server.write("SET", q.keys.watermark("audit"), event)
    assert one(server, orders=["audit"]).lag_ms == 5000


def test_three_round_trips_a_hundred_queues(server: Server, monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> None:
    names = [f"q{n:03}" for n in range(200)]
    server.read_many([("ZADD", Queue(server, name).keys.pending, 0, ids.mint()) for name in names])
    server.read_many([("HSET", Queue(server, "q000").keys.row(ids.mint()), "state", "pending") for _ in range(4000)])
    sent: list[int] = []
    plain = CommandDispatcher.send

    def counted(self: CommandDispatcher, calls: list[object], **more: object) -> list[object]:
        sent.append(len(calls))
        return plain(self, calls, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(CommandDispatcher, "send", counted)
    assert live_queues(server) == names
    assert all(one.look is not None for one in standings(server, names, ledger))
    assert len(sent) <= 6, sent


def told(standing: QueueStanding) -> list[str]:
    return [problem.kind for problem in standing.problems]


def test_what_is_wrong_and_what_mends_it(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    [quiet] = standings(server, ["orders"], ledger)
    assert told(quiet) == []
    add(q, 2)
    [job] = take(q, 1, 3_600_000)
    now = server.now_ms("orders")
    server.write("ZADD", q.keys.active, "XX", now - 3_600_000, job)
    server.write("ZADD", q.keys.schedule, now - 7_200_000, ids.mint())
    server.write("ZADD", q.keys.repeat, now - 7_200_000, "nightly")
    [late] = standings(server, ["orders"], ledger)
    assert told(late) == ["lapsed", "overdue", "repeatable_overdue"]
    assert [problem.fix for problem in late.problems][:2] == ["emq-ops sweep orders", "emq-ops promote orders"]
    assert "lapsed, the first 1 h ago" in late.problems[0].text
    control.pause_queue(q)
    holds.hold(ledger, Hold("orders", now, now + 60_000, "ops@web", "incident 7"))
    [stopped] = standings(server, ["orders"], ledger, protected={"orders"})
    assert told(stopped) == ["lapsed", "repeatable_overdue", "paused", "held"]
    assert stopped.state == "paused held protected"
    holds.hold(ledger, Hold("orders", now - 10, now - 1, "ops@web", "over"))
    [ended] = standings(server, ["orders"], ledger)
    assert ended.hold is None


def test_a_server_that_is_away_is_one_error(durable: Valkey) -> None:
    with connect(durable.url) as server:
        durable.kill()
        with pytest.raises(UnreachableError):
            list(standings(server.hurried(1), ["orders"]))
