"""A reference whose variable changed is a change of the plan; a hand's move is none; a rotated secret is none."""

from __future__ import annotations

from typing import Any

import pytest

from emq_ops.deploy.model import Plan, Step
from emq_ops.protocol.keyspace import keys_of
from tests.deploy.conftest import Desk

META = keys_of("orders").meta
SETTING = "queues: {orders: {settings: {concurrency: '${CC:-7}'}}}\n"


def steps(plan: Plan) -> list[tuple[str, str, list[tuple[str, Any, Any]]]]:
    return [(s.op, s.address, [(f.name, f.before, f.after) for f in s.fields]) for s in plan.steps]


def only(plan: Plan) -> Step:
    assert len(plan.steps) == 1
    return plan.steps[0]


def test_a_changed_variable_is_applied(desk: Desk) -> None:
    assert desk.apply(SETTING) == 1
    assert desk.server.read("HGET", META, "concurrency") == b"7"
    desk.env["CC"] = "7"
    assert desk.propose(SETTING).plan.empty
    desk.env["CC"] = "8"
    plan = desk.propose(SETTING).plan
    assert steps(plan) == [("update", "orders/concurrency", [("concurrency", 7, 8)])]
    assert (only(plan).notes, plan.drift) == (["CC changed"], [])
    assert desk.session.drift() == []  # nobody moved anything
    assert desk.apply(SETTING) == 2
    assert desk.server.read("HGET", META, "concurrency") == b"8"
    assert desk.propose(SETTING).plan.empty


def test_a_hands_move_is_told_apart(desk: Desk) -> None:
    desk.apply(SETTING)
    desk.server.write("HSET", META, "concurrency", 9)
    plan = desk.propose(SETTING).plan
    assert (plan.steps, [(d.address, d.applied, d.live) for d in plan.drift]) == ([], [("orders/concurrency", 7, 9)])
    desk.env["CC"] = "8"
    found = desk.session.drift()
    assert [(d.address, d.applied, d.live) for d in found] == [("orders/concurrency", "${CC:-7}", 9)]
    plan = desk.propose(SETTING).plan
    assert steps(plan) == [("update", "orders/concurrency", [("concurrency", "${CC:-7}", 8)])]
    assert (only(plan).notes, plan.drift) == (["CC changed", "was moved to 9 by hand"], [])
    desk.apply(SETTING)
    assert desk.server.read("HGET", META, "concurrency") == b"8"


def test_a_value_that_already_stands_is_only_recorded(light_desk: Desk) -> None:
    light_desk.apply(SETTING)
    light_desk.server.write("HSET", META, "concurrency", 8)
    light_desk.env["CC"] = "8"
    plan = light_desk.propose(SETTING).plan
    assert only(plan).write is None
    assert only(plan).notes == ["CC changed", "is so on the server already"]
    light_desk.apply(SETTING)
    assert light_desk.propose(SETTING).plan.empty


@pytest.mark.parametrize(
    ("text", "address", "name", "after"),
    [
        ("queues: {orders: {stalled: {max_stalled: '${N:-1}'}}}", "orders/stalled", "max_stalled", 4),
        ("queues: {orders: {dead: {keep: '${N:-1}', archive: false}}}", "orders/dead", "keep", 4),
        (
            "archive: {}\nqueues: {orders: {streams: {completions: {keep: '${N:-1}'}}}}",
            "orders/streams/completions",
            "keep",
            4,
        ),
        ("defaults: {stalled: {limit: '${N:-1}'}}\nqueues: {'mail-*': {optional: true}}", "mail-*/stalled", "limit", 4),
        ("queues: {orders: {stalled: {lease: '${N:-1}m'}}}", "orders/stalled", "lease", "4m"),
    ],
    ids=["stalled", "dead", "stream", "glob", "part of a text"],
)
def test_a_policys_value_alike(text: str, address: str, name: str, after: Any, light_desk: Desk) -> None:
    text += "\n"
    light_desk.apply(text, allow_loss=True)
    written = light_desk.propose(text)
    assert written.plan.empty
    light_desk.env["N"] = "4"
    plan = light_desk.propose(text).plan
    reference = "${N:-1}m" if after == "4m" else "${N:-1}"
    assert steps(plan) == [("update", address, [(name, reference, after)])]
    assert "N changed" in only(plan).notes
    light_desk.apply(text, allow_loss=True)
    assert light_desk.propose(text).plan.empty
    light_desk.env["N"] = "4 "[:1]
    assert light_desk.propose(text).plan.empty


def test_a_lowered_bound_by_a_variable_is_refused_like_a_written_one(light_desk: Desk) -> None:
    text = "queues: {orders: {dead: {keep: '${N}', archive: false}}}\n"
    light_desk.env["N"] = "9"
    light_desk.apply(text, allow_loss=True)
    light_desk.env["N"] = "3"
    assert light_desk.propose(text).plan.losses == [
        "orders/dead: keep goes from ${N} to 3, with archive: false: what is trimmed is lost"
    ]


def test_a_repeatable_and_a_lane(light_desk: Desk) -> None:
    text = (
        "queues: {orders: {settings: {lanes: {GRP0SSBKAh61tG: {limit: '${L:-2}'}},"
        " repeatables: {r: {every: '${E:-60s}', template: 'to ${T:-a}'}}}}}\n"
    )
    light_desk.apply(text)
    assert light_desk.propose(text).plan.empty
    light_desk.env["E"] = "1m"  # the same in other words
    assert light_desk.propose(text).plan.empty
    light_desk.env |= {"L": "3", "T": "b"}
    plan = light_desk.propose(text).plan
    assert [(s.address, s.notes) for s in plan.steps] == [
        ("orders/lanes/GRP0SSBKAh61tG/limit", ["L changed"]),
        ("orders/repeatables/r", ["T changed"]),
    ]
    assert light_desk.session.drift() == []
    light_desk.apply(text)
    assert light_desk.propose(text).plan.empty


def test_a_rotated_secret_is_no_change(light_desk: Desk) -> None:
    text = (
        "server: {password: '${PASSWORD}'}\n"
        "archive: {remote: {url: 's3://b', endpoint: 'http://127.0.0.1:1', secret_access_key: '${KEY}'}}\n"
        "queues: {orders: {streams: {completions: {redact: {hash: [x], salt: '${SALT}'}}}}}\n"
    )
    light_desk.env |= {"PASSWORD": "one", "KEY": "one", "SALT": "one"}
    light_desk.apply(text)
    light_desk.env |= {"PASSWORD": "two", "KEY": "two", "SALT": "two"}
    assert light_desk.propose(text).plan.empty


def test_what_is_stored_tells_nothing_of_a_value(light_desk: Desk) -> None:
    text = "queues: {orders: {settings: {repeatables: {r: {every: 1h, template: 'a ${HIDDEN}'}}}}}\n"
    light_desk.env["HIDDEN"] = "hunter2"
    light_desk.apply(text)
    current = light_desk.session.current()
    assert current is not None
    stored = current.document.text
    assert "hunter2" not in stored
    digest = current.document.data["resolved"]["a ${HIDDEN}"]
    other = light_desk.session.digests.of("b ${HIDDEN}", "a hunter2")
    assert digest != other  # equal values under two references don't show as equal
    assert digest == light_desk.session.digests.of("a ${HIDDEN}", "a hunter2")
