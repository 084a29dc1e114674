"""An apply of many settings: in few flushes, told in few lines, and whole after it broke off."""

from __future__ import annotations

import pytest

from emq_ops.deploy.model import Step
from emq_ops.deploy.render import text
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server
from tests.deploy.conftest import Desk

QUEUES = 150
CONFIG = "queues:\n" + "".join(
    f"  q{number:03d}: {{settings: {{concurrency: 5, paused: true}}}}\n" for number in range(QUEUES)
)


class BrokenOffError(Exception):
    """As if the process had ended."""


def test_many_settings_go_together_and_go_on_where_they_broke_off(light_desk: Desk, server: Server) -> None:
    proposal = light_desk.propose(CONFIG)
    shown = text(proposal.plan).splitlines()
    assert len(shown) < 12
    assert "+ 149 queues like q000 (q001, q002, q003 ...)" in shown

    told: list[str] = []

    def watch(step: Step, what: str) -> None:
        told.append(what)
        if what == "done" and told.count("done") > QUEUES:
            raise BrokenOffError

    with pytest.raises(BrokenOffError):
        light_desk.session.apply(proposal, watch=watch)
    # Written in flushes: several were begun before the first of them was done.
    assert told.index("done") > 3
    assert light_desk.propose(CONFIG).plan.interrupted is not None
    told.clear()
    light_desk.session.apply(light_desk.propose(CONFIG), watch=lambda _step, what: told.append(what))
    assert 0 < told.count("written") < QUEUES
    assert [server.read("HMGET", keys_of(f"q{n:03d}").meta, "concurrency", "paused") for n in range(QUEUES)] == [
        [b"5", b"1"]
    ] * QUEUES
    assert light_desk.propose(CONFIG).plan.empty
