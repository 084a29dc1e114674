"""Live settings that are no value of the YAML: odd texts, a half that is missing, a key of another type. Each is drift,
and is put back on demand; none stops a plan."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from emq_ops.audit.doctor import examine, mend
from emq_ops.protocol import ids
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, repeat
from tests.deploy.conftest import Desk

LANE = "GRP0SSBKAh61tG"
CONFIG = f"""\
queues:
  a:
    settings:
      paused: false
      concurrency: 50
      rate: 9
      lanes: {{{LANE}: {{paused: false, limit: 2, weight: 3}}}}
      repeatables: {{nightly: {{every: 10m, template: hello}}}}
  b: {{settings: {{concurrency: 4}}}}
"""
K = keys_of("a")


@pytest.mark.parametrize(
    ("setting", "broken", "said"),
    [
        ("concurrency", ("HSET", K.meta, "concurrency", "abc"), "abc"),
        ("rate", ("HSET", K.meta, "max", "-1"), "-1"),
        (f"lanes/{LANE}/limit", ("HSET", K.glimit, LANE, "2.5"), "2.5"),
        (f"lanes/{LANE}/weight", ("HSET", K.gweight, LANE, "x"), "x"),
        (
            "repeatables/nightly",
            ("HSET", K.repeatable("nightly"), "every_ms", "soon"),
            {"every": "soon", "template": "hello"},
        ),
        (
            "repeatables/nightly",
            ("ZREM", K.repeat, "nightly"),
            {"every": "10m", "template": "hello", "next": "never: it is not listed"},
        ),
        (
            "repeatables/nightly",
            ("ZADD", K.repeat, "inf", "nightly"),
            {"every": "10m", "template": "hello", "next": "never: its next instant is inf"},
        ),
        (
            "repeatables/nightly",
            ("ZADD", K.repeat, "4070908800000", "nightly"),
            {"every": "10m", "template": "hello", "next": "at 2099-01-01T00:00:00Z, more than a period away"},
        ),
        (
            "repeatables/nightly",
            ("DEL", K.repeatable("nightly")),
            {"row": "gone, though it is listed: it fires nothing"},
        ),
    ],
)
def test_an_odd_setting_is_drift_and_is_put_back(
    light_desk: Desk, setting: str, broken: tuple[str, ...], said: object
) -> None:
    light_desk.apply(CONFIG)
    light_desk.server.write(*broken)
    drift = light_desk.session.drift()
    assert [(d.address, d.live) for d in drift] == [(f"a/{setting}", said)]
    assert light_desk.propose(CONFIG).plan.drift == drift
    assert light_desk.apply(CONFIG.replace("concurrency: 4", "concurrency: 5")) == 2  # others go on, it stays
    changed = CONFIG.replace("concurrency: 4", "concurrency: 5")
    assert light_desk.session.drift() == drift
    assert light_desk.apply(changed, revert=(f"a/{setting}",)) == 3
    assert light_desk.session.drift() == []
    assert light_desk.propose(changed).plan.empty
    [one] = repeat.repeatables(Queue(light_desk.server, "a"))
    assert one.next_ms - light_desk.server.now_ms("a") <= 600_000


@pytest.mark.parametrize(
    ("limit", "paused", "broken", "setting"),
    [
        (2, True, ("LPUSH", K.ring, LANE), "paused"),
        (2, False, ("DEL", K.ring), "paused"),
        (1, False, ("LPUSH", K.ring, LANE), "limit"),
    ],
)
def test_a_lane_whose_place_on_the_ring_is_not_as_its_settings_say(
    light_desk: Desk, limit: int, paused: bool, broken: tuple[str, ...], setting: str
) -> None:
    q = Queue(light_desk.server, "a")
    for _ in range(3):
        enqueue.enqueue(q, ids.mint(), b"x", group=LANE)
    claims.claim_lane(q, lease_ms=60_000)
    config = CONFIG.replace("limit: 2", f"limit: {limit}").replace(
        f"{LANE}: {{paused: false", f"{LANE}: {{paused: {str(paused).lower()}"
    )
    light_desk.apply(config)
    assert light_desk.session.drift() == []
    light_desk.server.write(*broken)
    drift = light_desk.session.drift()
    assert f"a/lanes/{LANE}/{setting}" in [d.address for d in drift]
    assert all(" ring" in d.live for d in drift)
    assert not examine(light_desk.server, ["a"], settle=0).healthy
    light_desk.apply(config, revert=(f"a/lanes/{LANE}/{setting}",))
    assert light_desk.session.drift() == []
    assert examine(light_desk.server, ["a"], settle=0).healthy


@pytest.mark.parametrize("broken", [("ZREM", K.repeat, "nightly"), ("ZADD", K.repeat, "inf", "nightly")])
def test_doctor_mends_a_repeatable_that_never_fires(light_desk: Desk, broken: tuple[str, ...]) -> None:
    light_desk.apply(CONFIG)
    light_desk.server.write(*broken)
    found = examine(light_desk.server, ["a"], settle=0).findings
    assert [done.outcome for done in mend(light_desk.server, found)] == ["mended"]
    assert light_desk.session.drift() == []


def test_c31_a_key_of_another_type_stops_its_own_setting_alone(light_desk: Desk, server: Server) -> None:
    config = "archive: {}\nqueues:\n" + "".join(
        f"  {name}: {{dead: {{keep: 3}}, streams: {{completions: {{keep: 5}}}}, settings: {{concurrency: 7}}}}\n"
        for name in "abcde"
    )
    server.write("SET", K.dead, "x")
    server.write("SET", K.stream("completions"), "x")
    server.write("SET", K.meta, "x")
    plan = light_desk.propose(config).plan
    assert plan.refusals == []
    assert len([line for line in plan.warnings if line.startswith("a: ")]) == 2
    [step] = [step for step in plan.steps if step.address == "a/concurrency"]
    assert step.write is None
    assert step.notes == ["not written: meta is a string, not a hash; `emq-ops doctor` explains"]
    [trim] = [step for step in plan.steps if step.address == "a/dead"]
    assert trim.effect["ids"] == []  # the first pass removes nothing that was not listed
    assert light_desk.apply(config) == 1
    assert [server.read("HGET", keys_of(name).meta, "concurrency") for name in "bcde"] == [b"7"] * 4
    [drift] = light_desk.session.drift()
    assert (drift.address, drift.live) == ("a/concurrency", "unreadable: meta is a string, not a hash")
    shown = light_desk.propose(config, revert=("all",)).plan
    assert (shown.steps, len(shown.drift)) == ([], 1)
    assert "a/concurrency can't be put back: meta is a string, not a hash; `emq-ops doctor` explains" in shown.warnings
    server.write("DEL", K.meta)
    assert light_desk.apply(config, revert=("all",)) == 2
    assert server.read("HGET", K.meta, "concurrency") == b"7"


def test_a_server_that_lost_everything_gets_back_what_was_applied(light_desk: Desk, server: Server) -> None:
    before = light_desk.apply(CONFIG)
    assert before == 1
    server.write("FLUSHALL")
    q = Queue(server, "a")
    enqueue.enqueue(q, ids.mint(), b"x")  # its workers are there again at once
    control.set_rate(q, 7)  # and somebody's hand
    drift = light_desk.session.drift()
    assert {d.address for d in drift if not d.lost} == {"a/rate"}
    assert {"a/concurrency", "a/repeatables/nightly", f"a/lanes/{LANE}/limit", "b/concurrency"} <= {
        d.address for d in drift if d.lost
    }
    plan = light_desk.propose(CONFIG).plan
    assert [d.address for d in plan.drift] == ["a/rate"]
    assert {step.op for step in plan.steps} == {"restore"}
    assert plan.warnings[0] == (
        "the server lost what was applied to a, b (the note of the last apply is gone); `emq-ops apply` puts it back"
    )
    assert light_desk.apply(CONFIG) == 2
    assert [d.address for d in light_desk.session.drift()] == ["a/rate"]
    control.set_concurrency(q, None)  # a hand's move again: it stays
    assert [d.address for d in light_desk.propose(CONFIG).plan.drift] == ["a/concurrency", "a/rate"]
    assert light_desk.apply(CONFIG) is None


def test_a_server_that_went_back_to_a_backup_gets_what_was_applied_since(light_desk: Desk, server: Server) -> None:
    light_desk.apply(CONFIG)
    backup = {key: server.read("DUMP", key) for key in server.scan("emq*")}
    later = CONFIG.replace("concurrency: 50", "concurrency: 60").replace("rate: 9", "rate: 8")
    assert light_desk.apply(later) == 2
    assert light_desk.propose(later).plan.empty
    server.write("FLUSHALL")
    for key, value in backup.items():
        server.write("RESTORE", key, 0, value)
    control.set_rate(Queue(server, "a"), 5)
    plan = light_desk.propose(later).plan
    assert [(step.op, step.address) for step in plan.steps] == [("restore", "a/concurrency")]
    assert [d.address for d in plan.drift] == ["a/rate"]
    assert plan.warnings[0].startswith("the server lost what was applied to a (it carries the note of an earlier one)")
    changed = later.replace("concurrency: 60", "concurrency: 70")
    [step] = light_desk.propose(changed).plan.steps
    assert step.notes == ["was lost with the server's data"]


def test_an_older_state_takes_nothing_for_lost(light_desk: Desk, server: Server) -> None:
    """The state came back from a backup: the server carries what a later revision wrote."""
    light_desk.apply(CONFIG)
    later = CONFIG.replace("concurrency: 50", "concurrency: 60")
    light_desk.apply(later)
    with light_desk.ledger.write() as connection:
        connection.execute(text("DELETE FROM revisions WHERE number = 2"))
    plan = light_desk.propose(CONFIG).plan
    assert (plan.steps, [d.address for d in plan.drift]) == ([], ["a/concurrency"])
