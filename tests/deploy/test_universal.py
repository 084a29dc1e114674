"""What holds for any configs: applied is live, a second plan is empty, and only what the YAML names was touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emq_ops.deploy.live_settings import read_setting
from emq_ops.deploy.settings import flat
from emq_ops.deploy.store.lock import LockLostError, StateLock, owner_of
from emq_ops.protocol.errors import ServerError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control
from tests.deploy.conftest import Desk
from tests.support.keyspace import dump
from tests.support.roles import connect_as, install
from tests.support.valkey import Valkey

LANES = ["GRP0SSBKAh61tG", "GRP0SSBKAh61tH"]
COUNT = st.integers(1, 1000)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "paused": st.booleans(),
        "concurrency": COUNT,
        "rate": COUNT,
        "lanes": st.dictionaries(
            st.sampled_from(LANES),
            st.fixed_dictionaries({}, optional={"limit": COUNT, "weight": COUNT, "paused": st.booleans()}),
        ),
        "repeatables": st.dictionaries(
            st.sampled_from(["a", "with space", "ü"]),
            st.fixed_dictionaries({"every": st.sampled_from(["90s", "1m30s", "1d"]), "template": st.text(max_size=10)}),
        ),
    },
)
CONFIG = st.dictionaries(st.sampled_from(["q", "r", "mail[1]"]), SETTINGS)


def text(config: dict[str, Any]) -> str:
    """As YAML: JSON is YAML, but for `${` in a text."""
    return json.dumps({"queues": {q: {"settings": s} for q, s in config.items()}}).replace("${", "$${")


@given(st.lists(CONFIG, min_size=1, max_size=3))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_configs(server: Server, light_desk: Desk, configs: list[dict[str, Any]]) -> None:
    desk = light_desk
    desk.apply("{}")
    for config in configs:
        desk.apply(text(config))
        for queue, wanted in config.items():
            for path, value in flat(wanted).items():
                expected = (
                    {**value, "every": value["every"].replace("1m30s", "90s")} if isinstance(value, dict) else value
                )
                assert read_setting(server, queue, path) == expected
        again = desk.propose(text(config)).plan
        assert again.empty
        assert again.drift == []
    desk.apply("{}")
    assert dump(server) == {}


def test_a_reader_plans_and_the_daemon_applies(valkey: Valkey, server: Server, make_desk: Callable[[], Desk]) -> None:
    install(valkey)
    config = (
        "archive: {}\nqueues: {q: {stalled: {}, dead: {keep: 1, max_age: 1d}, streams: {completions: {max_age: 1d}}, "
        "settings: {paused: true, concurrency: 5, rate: 6, "
        "lanes: {GRP0SSBKAh61tG: {limit: 2, weight: 3, paused: true}}, "
        'repeatables: {n: {every: 1d, template: x}}}}, "*": {}}\n'
    )
    q = Queue(server, "q")
    for job in ("JOB0STBBIRAKHo", "JOB0STBBIRAKHp"):
        server.write("ZADD", q.keys.dead, 0, job)
        server.write("HSET", q.keys.row(job), "state", "dead", "attempts", "1")
    server.write("XADD", q.keys.stream("completions"), "1-0", "a", "b")
    desk = make_desk()
    folder = desk.file.parent
    with connect_as(valkey, "reader") as reader:
        reading = Desk(reader, desk.ledger, folder)
        proposal = reading.propose(config)
        assert len(proposal.plan.steps) == 10
        assert reading.session.drift() == []
        with pytest.raises(ServerError):
            reading.session.apply(proposal)
    with connect_as(valkey, "daemon") as daemon:
        assert Desk(daemon, desk.ledger, folder).apply(config) == 1
    with connect_as(valkey, "operator") as operator:
        assert Desk(operator, desk.ledger, folder).apply("archive: {}") == 2


def test_a_silent_owner_is_replaced_and_notices(desk: Desk) -> None:
    """An owner on another host (so that nobody can tell whether it lives) whose lock ran out."""
    slow = StateLock(desk.ledger, "apply", ttl_ms=50)
    slow.take()

    def ran_out() -> bool:
        with desk.ledger.read() as connection:
            owner = owner_of(connection)
        return owner is not None and not owner.held

    while not ran_out():
        pass
    other = StateLock(desk.ledger, "apply")
    before = other.take()
    assert before is not None
    with desk.ledger.write() as connection, pytest.raises(LockLostError):
        slow.assert_held(connection)
    with desk.ledger.write() as connection:
        slow.give_up(connection)  # not ours any more: does nothing
        other.assert_held(connection)
        other.give_up(connection)
        assert owner_of(connection) is None


def test_a_setting_moved_between_two_writes_stops_the_apply(light_desk: Desk, server: Server) -> None:
    config = "queues: {q: {settings: {paused: true, concurrency: 5}}}\n"

    def meddle(step: Any, what: str) -> None:
        if (step.address, what) == ("q/paused", "done"):
            control.set_concurrency(Queue(server, "q"), 99)

    with pytest.raises(Exception, match="q/concurrency was unset on the server, now it is 99"):
        light_desk.session.apply(light_desk.propose(config), watch=meddle)
    shown = light_desk.propose(config).plan
    assert shown.interrupted is not None
    assert shown.interrupted.step == 1
    assert [(s.address, s.write is None) for s in shown.steps] == [("q/paused", True), ("q/concurrency", False)]
    assert light_desk.apply(config) == 1
