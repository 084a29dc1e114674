"""Predictions of a check run build on each other; where they can't, they say so."""

from __future__ import annotations

import pytest

from emq_ops.playbook.events import TaskEnded
from emq_ops.playbook.outcome import TaskOutcome
from tests.playbook.bench import Bench, lane


def checked(bench: Bench, tasks: str) -> list[TaskOutcome]:
    before = bench.keyspace()
    bench.play(f"- queues: orders\n  tasks: [{tasks}]\n", check=True)
    assert bench.keyspace() == before
    return [event.outcome for event in bench.said if isinstance(event, TaskEnded)]


def test_pause_then_resume(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A"]})
    found = checked(bench, "{pause: }, {pause: }, {resume: }, {resume: }, {pause: }")
    assert [(o.status, o.unknown) for o in found] == [
        ("changed", False), ("ok", False), ("changed", False), ("ok", False), ("changed", False),
    ]  # fmt: skip
    ended = bench.play("- queues: orders\n  tasks: [{pause: }, {pause: }, {resume: }, {resume: }, {pause: }]\n")
    assert ended.tallies["orders"].changed == 3
    assert [event.outcome.status for event in bench.said if isinstance(event, TaskEnded)] == [o.status for o in found]


def test_lanes_and_limits_are_apart(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A"]})
    g, h = lane("G"), lane("H")
    tasks = (
        f"{{pause: {{lane: {g}}}}}, {{resume: {{lane: {h}}}}}, {{resume: }}, {{resume: {{lane: {g}}}}},"
        f"{{limit_lane: {{lane: {g}, limit: 3}}}}, {{limit_lane: {{lane: {g}, limit: 3}}}},"
        f"{{limit_lane: {{lane: {g}, limit: 0}}}}"
    )
    statuses = [outcome.status for outcome in checked(bench, tasks)]
    assert statuses == ["changed", "ok", "ok", "changed", "changed", "ok", "changed"]


def test_what_looks_sees_the_predicted_pause(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A"]})
    found = checked(
        bench, "{pause: }, {health: , register: h}, {assert: h.paused}, {wait_for: {paused: true, timeout: 1ms}}"
    )
    assert [outcome.failed or outcome.unknown for outcome in found] == [False] * 4


@pytest.mark.parametrize(
    ("tasks", "doubted"),
    [
        ("{requeue: {all: true}}, {remove: {all: true}}", [False, True]),
        ("{requeue: {all: true}}, {drain: }", [False, True]),
        ("{requeue: {all: true}}, {health: }", [False, True]),
        ("{drain: }, {audit: }", [False, False]),
        ("{pause: }, {requeue: {all: true}}", [False, False]),
        ("{requeue: {ids: [JOB0SSBKAh61tG]}}, {remove: {all: true}}", [False, False]),
        ("{remove: {all: true}}, {requeue: {all: true}}, {sweep: }", [False, True, False]),
    ],
)
def test_what_can_not_be_built_on_is_said(bench: Bench, tasks: str, doubted: list[bool]) -> None:
    bench.put("orders", {"pending": ["A"], "dead": {"B": "x", "C": "x"}})
    found = checked(bench, tasks)
    assert [outcome.unknown for outcome in found] == doubted
    assert ["as it is before '" in outcome.message for outcome in found] == doubted


def test_a_real_run_doubts_nothing(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A"], "dead": {"B": "x"}})
    bench.play("- queues: orders\n  tasks: [{requeue: {all: true, rate: 100000}}, {drain: }]\n")
    found = [event.outcome for event in bench.said if isinstance(event, TaskEnded)]
    assert [(outcome.status, outcome.unknown) for outcome in found] == [("changed", False), ("changed", False)]
