"""`import`: the YAML that it writes is valid, and applying it changes nothing on the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.deploy.importer import as_yaml, read_queues
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control, repeat
from tests.deploy.conftest import Desk
from tests.support.keyspace import dump, load_live, of_emq

LANE = "GRP0SSBKAh61tG"
ODD = ["mail[1]", "a*b", "1st", "on", "with space", "ümlaut", "dots.and:colons", "back\\slash", '"quoted"']


def settle(server: Server) -> None:
    q = Queue(server, "orders")
    control.pause_queue(q)
    control.set_concurrency(q, 50)
    control.set_rate(q, 9)
    control.limit_lane(q, LANE, 2)
    control.weight_lane(q, LANE, 3)
    control.pause_lane(q, LANE)
    repeat.register(q, "nightly", 86_400_000, b'{"cost": "$5 ${HOME}", "note": "no # comment"}')
    repeat.register(q, "binary", 1_500, b"\xff\x00")
    server.write("XADD", q.keys.stream("completions"), "1-0", "a", "b")
    server.write("SADD", q.keys.paused, "nonsense")


def test_what_is_written_wants_what_is_live(server: Server, light_desk: Desk) -> None:
    settle(server)
    for name in ODD:
        control.set_concurrency(Queue(server, name), 7)
    keys = keys_of("orders")
    server.write("ZADD", keys.repeat, "+inf", "junk", 2, b"\xff")
    server.write("HSET", keys.repeatable("junk"), "every_ms", "nan", "template", "x")
    entries, left_out = read_queues(server)
    server.write("ZREM", keys.repeat, "junk", b"\xff")
    server.write("UNLINK", keys.repeatable("junk"))
    assert sorted(entries) == sorted(["orders", *ODD])
    assert sorted(left_out) == [
        "orders: b'nonsense' is no lane's id",
        "orders: repeatable 'junk' has no interval",
        "orders: the name of repeatable '\\udcff' is not UTF-8 text",
        "orders: the template of repeatable 'binary' is not UTF-8 text",
    ]
    text = as_yaml(entries, None)
    before = dump(server)
    proposal = light_desk.propose(text)
    assert {s.queue for s in proposal.plan.steps} == {"orders", *ODD}
    assert [s.address for s in proposal.plan.steps if s.write is not None] == []
    light_desk.session.apply(proposal)
    assert of_emq(dump(server)) == of_emq(before)
    assert light_desk.propose(text).plan.empty
    assert light_desk.session.drift() == []


def test_on_the_recorded_keyspace(server: Server, light_desk: Desk) -> None:
    load_live(server)
    entries, left_out = read_queues(server)
    assert left_out == []
    assert sorted(entries) == ["mail", "orders", "render", "reports"]
    assert list(entries["orders"]["streams"]) == ["audit", "completions"]
    assert entries["reports"]["settings"]["paused"] is True
    before = dump(server)
    proposal = light_desk.propose(as_yaml(entries, None))
    assert [s.address for s in proposal.plan.steps if s.write is not None] == []
    assert dump(server) == before


def test_c20_only_the_queues_that_are_named(server: Server) -> None:
    for name in ("mail[1]", "mail1", "mail-2"):
        control.set_concurrency(Queue(server, name), 7)
    assert list(read_queues(server, ["mail[1]"])[0]) == ["mail[1]"]
    assert list(read_queues(server, ["mail-*"])[0]) == ["mail-2"]
    with pytest.raises(BadInputError, match=r"'nothing-\*' takes no queue"):
        read_queues(server, ["nothing-*"])


def test_an_empty_server(server: Server, light_desk: Desk, tmp_path: Path) -> None:
    text = as_yaml(read_queues(server)[0], "redis://h")
    assert light_desk.config(text).config.server.url == "redis://h"
