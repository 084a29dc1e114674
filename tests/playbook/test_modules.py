"""What every module keeps to: it returns what it documents, and destructive ones honour the config's guards."""

from __future__ import annotations

from typing import Any

import pytest

from emq_ops.playbook.context import QueuePolicy
from emq_ops.playbook.events import TaskEnded
from emq_ops.playbook.modules import MODULES
from emq_ops.policy.models import DeadPolicy, StreamPolicy
from tests.playbook.bench import Bench
from tests.playbook.test_cases import spelled
from tests.playbook.test_check_mode import TASKS
from tests.playbook.test_shipped import add_archive

COMMON = {"changed", "failed", "skipped", "msg", "count"}
FULL: dict[str, Any] = {
    "pending": ["A", "B"],
    "lanes": {"G": ["C"]},
    "active": {"D": -9000, "E": 60_000},
    "schedule": {"F": -5, "H": 60_000},
    "dead": {"I": "stalled", "J": "timeout 3", "K": "fatal"},
    "streams": {"audit": 5, "completions": 4},
    "paused": True,
}
DESTRUCTIVE = {
    "trim_dead": "trim_dead: {keep: 0, archive: false}",
    "remove": "remove: {all: true, rate: 100000}",
    "drain": "drain: ",
    "obliterate": "obliterate: {force: true}",
    "stream_trim": "stream_trim: {stream: completions, keep: 1}",
    "cancel": 'cancel: {ids: ["@A", "@B"]}',
}


@pytest.mark.parametrize("name", TASKS)
def test_it_returns_what_it_documents(name: str, bench: Bench) -> None:
    add_archive(bench, dead=DeadPolicy(keep=0), streams={"audit": StreamPolicy(keep=1)})
    bench.configured = ["orders", "empty"]
    bench.put("orders", FULL)
    for queue, check in (("empty", True), ("empty", False), ("orders", True), ("orders", False)):
        bench.play(f"- queues: {queue}\n  tasks:\n    - {spelled(TASKS[name][0])}\n", check=check)
        [outcome] = [event.outcome for event in bench.said if isinstance(event, TaskEnded)]
        found, wanted = set(outcome.result) - COMMON, set(MODULES[name].returns) - COMMON
        assert found == wanted or (outcome.failed and found <= wanted), (queue, check)


def test_the_destructive_ones_are_all_here() -> None:
    assert set(DESTRUCTIVE) == {module.name for module in MODULES.values() if module.destructive}


@pytest.mark.parametrize("check", [True, False], ids=["check", "run"])
@pytest.mark.parametrize(
    ("policy", "line"),
    [
        (QueuePolicy(protect=True), "queue 'orders' is protected; {} is refused"),
        (QueuePolicy(max_removals=1), "{} would remove "),
    ],
    ids=["protect", "max_removals"],
)
@pytest.mark.parametrize("name", DESTRUCTIVE)
def test_a_guard_refuses_it_and_nothing_is_done(
    name: str, policy: QueuePolicy, line: str, check: bool, bench: Bench
) -> None:
    bench.put("orders", FULL)
    bench.policy = policy
    before = bench.keyspace()
    ended = bench.play(f"- queues: orders\n  tasks:\n    - {spelled(DESTRUCTIVE[name])}\n", check=check)
    assert ended.status == "failed"
    assert bench.message(name).startswith(line.format(name))
    assert bench.keyspace() == before
