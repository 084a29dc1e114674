"""What a plan, `up` and `doctor` say of repeatables: who fires them, and whether anybody claims what they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, repeat
from tests.deploy.conftest import Desk
from tests.support.cli import emq
from tests.support.pumps import other_pump
from tests.support.valkey import Valkey

LANE = "GRP0SSBKAh61tG"
YAML = "queues: {mail: {settings: {repeatables: {tick: {%s, template: t}}}%s}}\n"
OURS, BESIDE = ", promote: {every: 1s}", ", promote: {every: 1s, beside_pump: true}"


def said(desk: Desk, when: str, promote: str = "") -> tuple[list[str], list[str]]:
    plan = desk.propose(YAML % (when, promote)).plan
    return [one.what for one in plan.refusals], plan.warnings


def test_repeatables_that_nobody_fires(light_desk: Desk) -> None:
    for when in ("every: 1h", "cron: '@daily'"):
        refusals, [warning] = said(light_desk, when)
        assert (refusals, "fired by nobody that was seen" in warning) == ([], True)
    light_desk.apply(YAML % ("every: 1h", ""))
    assert said(light_desk, "every: 1h")[1]
    other_pump(Queue(light_desk.server, "mail"), "tick")
    assert said(light_desk, "every: 1h") == ([], [])
    assert "by the calendar" in said(light_desk, "cron: '@daily'")[1][0]


def test_promote_beside_another_pump_is_refused_unless_told(light_desk: Desk) -> None:
    light_desk.apply(YAML % ("every: 1h", OURS))
    other_pump(Queue(light_desk.server, "mail"), "tick")
    [refusal], _ = said(light_desk, "every: 1h", OURS)
    assert refusal == "mail: another pump fires its repeatables, so with `promote` beside it they would fire twice"
    assert said(light_desk, "every: 1h", BESIDE)[0] == []


def test_flat_jobs_where_no_flat_claimer_is_seen(light_desk: Desk) -> None:
    mail = Queue(light_desk.server, "mail")
    assert said(light_desk, f"every: 1h, lane: {LANE}", OURS) == ([], [])
    assert "EchoMQ's Consumer claims lanes only" in said(light_desk, "every: 1h", OURS)[1][0]
    enqueue.enqueue(mail, ids.mint(), b"x")
    claims.claim(mail, 60_000)
    assert said(light_desk, "every: 1h", OURS) == ([], [])


def test_a_lane_and_a_line_of_cron_are_settings_like_others(light_desk: Desk) -> None:
    whens = (f"every: 1h, lane: {LANE}", "cron: '0 3 * * *', zone: Europe/Berlin", "cron: '@daily'", "every: 2h")
    for when in whens:
        text = YAML % (when, OURS)
        light_desk.apply(text)
        assert light_desk.propose(text).plan.empty, when
        assert light_desk.session.drift() == []
    [one] = repeat.repeatables(Queue(light_desk.server, "mail"))
    assert (one.every_ms, one.lane, one.cron) == (7_200_000, None, "")


def test_by_hand_and_up_once_fire_and_refuse(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    file = tmp_path / "c.yaml"
    head = f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///{tmp_path}/s.db'}}\n"
    mail = Queue(server, "mail")
    file.write_text(head + YAML % ("every: 1h", ", promote: {every: 10ms}"))
    assert emq("-c", file, "apply", "--yes").code == 0
    assert emq("-c", file, "up", "--once").code == 0
    assert server.read("ZCARD", mail.keys.pending) == 1
    server.write("ZADD", mail.keys.repeat, 1_600_000_000_000, "tick")
    assert emq("-c", file, "promote", "mail", "--output", "json").json["fired"] == 1
    server.write("HSET", mail.keys.repeat_marks, "tick", 1_600_000_000_000)
    other_pump(mail, "tick")
    looked = emq("-c", file, "doctor")
    assert "another pump fired repeatable 'tick'" in looked.err
    assert "3 flat jobs wait, and nobody was seen to claim flat jobs" in looked.err
    server.write("ZADD", mail.keys.schedule, 1_600_000_000_000, ids.mint())
    assert emq("-c", file, "plan").code == 1
    by_hand, once = emq("-c", file, "promote", "mail"), emq("-c", file, "up", "--once")
    assert (by_hand.code, once.code) == (1, 1), once
    assert "another pump fires this queue's repeatables" in by_hand.err
    assert server.read("ZCARD", mail.keys.pending) == 3


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("zone: UTC", "expected one of every and cron, got neither"),
        ("every: 1h, cron: '@daily'", "expected one of every and cron, got both"),
        ("every: 1h, zone: UTC", "expected none where there is no cron"),
        ("cron: '0 3 * *'", "a cron expression has five fields"),
        ("cron: '99 3 * * *'", "minute"),
        ("cron: '@daily', zone: Mars/Base", "Mars/Base"),
        ("cron: 1h", "a cron expression has five fields"),
        ("every: 1h, lane: GRPshort", "GRPshort"),
    ],
)
def test_bad_repeatables_in_the_yaml(tmp_path: Path, when: str, why: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(YAML % (when, ""))
    told = emq("-c", file, "validate")
    assert (told.code, why in told.err) == (4, True), told.err
