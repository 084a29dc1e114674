"""`max_removals` bounds a run on a queue, whatever the form in which jobs go."""

from __future__ import annotations

import pytest

from emq_ops.playbook.context import QueuePolicy
from tests.playbook.bench import Bench
from tests.playbook.test_cases import spelled

NAMES = "ABCDEFGHIJ"
ITEMS = ", ".join(f'"@{name}"' for name in NAMES)
LOOP = f"""
- queues: orders
  tasks: [{{name: drop, remove: {{ids: "{{{{ item }}}}"}}, loop: [{ITEMS}]}}]
"""
TASKS = "\n- queues: orders\n  tasks:\n" + "".join(
    f"    - {{name: drop {name}, remove: {{ids: '@{name}'}}}}\n" for name in NAMES
)
PLAYS = "".join(f"\n- queues: orders\n  tasks: [{{name: drop {name}, remove: {{ids: '@{name}'}}}}]" for name in NAMES)


def dead(bench: Bench, names: str = NAMES) -> None:
    bench.put("orders", {"dead": dict.fromkeys(names, "x")})


@pytest.mark.parametrize("text", [LOOP, TASKS, PLAYS + "\n"], ids=["loop", "tasks", "plays"])
def test_no_form_takes_more_than_the_bound(bench: Bench, text: str) -> None:
    dead(bench)
    bench.policy = QueuePolicy(max_removals=5)
    ended = bench.play(spelled(text))
    assert ended.status == "failed"
    assert len(bench.seen("orders")["dead"]) == 5


def test_a_check_says_so(bench: Bench) -> None:
    dead(bench)
    bench.policy = QueuePolicy(max_removals=5)
    before = bench.keyspace()
    ended = bench.play(spelled(LOOP), check=True)
    assert ended.status == "failed"
    assert "after 5 that this run removed already, more than max_removals (5)" in bench.message("drop")
    assert bench.keyspace() == before


def test_what_was_removed_before_it_was_resumed_counts(bench: Bench) -> None:
    dead(bench)
    bench.policy = QueuePolicy(max_removals=3)
    failed = bench.play(spelled(TASKS))
    assert (failed.status, len(bench.seen("orders")["dead"])) == ("failed", 7)
    bench.policy = QueuePolicy(max_removals=5)
    again = bench.resume(failed.run)
    assert (again.status, len(bench.seen("orders")["dead"])) == ("failed", 5)


def test_another_run_has_a_bound_of_its_own(bench: Bench) -> None:
    dead(bench)
    bench.policy = QueuePolicy(max_removals=5)
    bench.play(spelled(LOOP))
    ended = bench.play(spelled("\n- queues: orders\n  tasks: [{name: rest, remove: {all: true}}]\n"))
    assert ended.status == "done"
    assert bench.seen("orders") == {}


def test_tries_count_together(bench: Bench) -> None:
    dead(bench, "AB")
    bench.policy = QueuePolicy(max_removals=1)
    text = """
- queues: orders
  tasks:
    - {name: drop, remove: {all: true, limit: 1}, until: "false", retries: 1, delay: 1ms, register: r}
"""
    ended = bench.play(spelled(text))
    assert ended.status == "failed"
    assert len(bench.seen("orders")["dead"]) == 1
