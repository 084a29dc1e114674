"""What changed something notifies and counts, whatever became of the task afterwards."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from emq_ops.ledger import holds, runs
from emq_ops.playbook.asks import Asks, Confirmation
from emq_ops.playbook.context import QueuePolicy
from emq_ops.playbook.decisions import CHANGE, Decision, Result
from emq_ops.playbook.events import PlayEvent, Progress, TaskEnded
from emq_ops.playbook.outcome import CHANGED, FAILED, OK, RecapLine, TaskOutcome, done, failed, together
from emq_ops.playbook.play import PlayOptions, prepare
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import jobs
from tests.playbook.bench import Bench, job, lane, letter
from tests.playbook.test_cases import spelled
from tests.support.waiting import first_true

HALF = """
- queues: orders
  handlers: [{name: tell, debug: told}]
  tasks:
    - block:
        - name: drop
          remove: {ids: "{{ item }}"}
          loop: [["@A"], ["@B", "@C"]]
          register: r
          notify: tell
      rescue:
        - {name: seen, assert: {that: [r.changed, r.failed, "r.count == 1"]}}
"""


def test_a_loop_that_changed_and_then_failed(bench: Bench) -> None:
    bench.policy = QueuePolicy(max_removals=1)
    bench.put("orders", {"dead": {"A": "x", "B": "x", "C": "x"}})
    ended = bench.play(spelled(HALF))
    assert (ended.status, [name for name, _ in bench.outcomes()]) == ("done", ["drop", "seen", "tell"])
    tally = ended.tallies["orders"].as_row()
    assert (tally["changed"], tally["failed"], tally["rescued"]) == (1, 0, 1)
    kept = next(run for run in runs.latest(bench.ledger) if run.kind == "play")
    assert kept.counts["changed"] == 1


def test_a_failed_run_says_so_too_and_so_does_its_resume(bench: Bench) -> None:
    bench.policy = QueuePolicy(max_removals=1)
    bench.put("orders", {"dead": {"A": "x", "B": "x", "C": "x"}})
    text = spelled(HALF.split("      rescue:")[0])
    ended = bench.play(text)
    assert (ended.status, ended.tallies["orders"].changed, ended.tallies["orders"].failed) == ("failed", 1, 1)
    assert [name for name, _ in bench.outcomes()] == ["drop", "tell"]
    bench.policy = QueuePolicy()
    again = bench.resume(ended.run)
    assert (again.status, again.tallies["orders"].changed, again.tallies["orders"].failed) == ("done", 1, 0)
    assert [name for name, _ in bench.outcomes()] == ["drop", "tell"]


def test_a_change_of_an_earlier_try_is_kept(bench: Bench) -> None:
    bench.put("orders", {"dead": {"A": "x", "B": "x", "C": "x"}})
    text = """
- queues: orders
  handlers: [{name: tell, debug: told}]
  tasks:
    - name: back
      requeue: {all: true, limit: 1, rate: 100000}
      register: r
      until: r.count == 0
      retries: 9
      delay: 1ms
      notify: tell
    - {name: whole, assert: {that: [r.changed, "r.count == 3"]}}
"""
    ended = bench.play(text)
    assert (ended.status, ended.tallies["orders"].changed) == ("done", 1)
    assert bench.outcomes() == [("back", "changed"), ("whole", "ok"), ("tell", "ok")]
    assert bench.result("back")["count"] == 3


def test_changes_of_tries_before_an_interruption_are_kept(bench: Bench) -> None:
    bench.put("orders", {"dead": {"A": "x", "B": "x", "C": "x"}})
    text = """
- queues: orders
  handlers: [{name: tell, debug: told}]
  tasks:
    - {name: back, requeue: {all: true, limit: 1, rate: 100000}, register: r, until: r.count == 0, retries: 9,
       delay: 1ms, notify: tell}
"""
    stopping = threading.Event()

    def said(event: PlayEvent) -> None:
        if isinstance(event, Progress) and event.text.startswith("try 4"):  # all is done, and the goal not seen yet
            stopping.set()

    first = prepare(bench.ops, bench.write(text), PlayOptions(), environment={}, emit=said, stopping=stopping).run()
    assert (first.status, bench.seen("orders")["pending"]) == ("interrupted", ["A", "B", "C"])
    ended = bench.resume(first.run)
    assert (ended.status, ended.tallies["orders"].changed) == ("done", 1)
    assert bench.outcomes() == [("back", "changed"), ("tell", "ok")]
    assert bench.result("back")["count"] == 3


def test_a_change_before_the_tries_ran_out(bench: Bench) -> None:
    bench.put("orders", {"dead": {"A": "x"}})
    text = """
- queues: orders
  handlers: [{name: tell, debug: told}]
  tasks:
    - {name: back, requeue: {all: true}, register: r, until: r.count > 5, retries: 1, delay: 1ms, notify: tell}
"""
    ended = bench.play(text)
    assert (ended.status, ended.tallies["orders"].changed, ended.tallies["orders"].failed) == ("failed", 1, 1)
    assert [name for name, _ in bench.outcomes()] == ["back", "tell"]


def test_a_mistake_that_shows_only_after_a_change(bench: Bench) -> None:
    bench.put("orders", {"lanes": {"A": ["A"], "B": ["B"]}})
    text = f"""
- queues: orders
  handlers: [{{name: undo, resume: {{lane: "{{{{ item }}}}"}}, loop: [{lane("A")}, {lane("B")}]}}]
  tasks:
    - set_fact: {{lanes: [{lane("A")}, {lane("B")}, none]}}
    - {{name: hush, pause: {{lane: "{{{{ item }}}}"}}, loop: "{{{{ lanes }}}}", notify: undo}}
"""
    ended = bench.play(text)
    assert (ended.status, ended.tallies["orders"].changed, ended.tallies["orders"].failed) == ("bad_input", 2, 1)
    assert [name for name, _ in bench.outcomes()] == ["set_fact", "hush", "undo"]
    assert "paused_lanes" not in bench.seen("orders")


@pytest.mark.parametrize("odd", ["until: r.nothing", "until: false, delay: '{{ soon }}'"])
def test_a_mistake_in_what_a_later_try_needs(bench: Bench, odd: str) -> None:
    bench.put("orders", {"dead": {"A": "x"}})
    text = f"""
- queues: orders
  handlers: [{{name: tell, debug: told}}]
  tasks:
    - set_fact: {{soon: never}}
    - {{name: back, requeue: {{all: true}}, register: r, {odd}, notify: tell}}
"""
    ended = bench.play(text)
    assert (ended.status, ended.tallies["orders"].changed, ended.tallies["orders"].failed) == ("bad_input", 1, 1)
    assert [name for name, _ in bench.outcomes()] == ["set_fact", "back", "tell"]
    assert bench.result("back")["count"] == 1


def test_what_was_done_before_a_fault_counts(bench: Bench) -> None:
    """Acts go in slices; the queue is held once the first of them is done."""
    letters = "ABCDEFGHIJKLMNOPQRST"
    bench.put("orders", {"dead": dict.fromkeys(letters, "x")})
    text = """
- queues: orders
  handlers: [{name: tell, debug: told}]
  tasks:
    - block: [{name: back, requeue: {all: true, rate: 8}, register: r, notify: tell}]
      rescue: [{name: seen, assert: {that: [r.changed, r.failed, "r.count > 0", "r.count < 20"]}}]
"""
    pending = Queue(bench.server, "orders").keys.pending

    def hold() -> None:
        first_true(lambda: bench.server.read("ZCARD", pending), 60, lambda: "no job came back")
        now = bench.server.now_ms("orders")
        holds.hold(bench.ledger, holds.Hold("orders", now, now + 600_000, "somebody"))

    holding = threading.Thread(target=hold)
    holding.start()
    ended = bench.play(text)
    holding.join()
    tally = ended.tallies["orders"]
    assert (ended.status, tally.changed, tally.rescued) == ("done", 1, 1)
    assert [name for name, _ in bench.outcomes()] == ["back", "seen", "tell"]


def test_what_a_pass_did_before_a_fault_counts(bench: Bench) -> None:
    """The state takes the first death, and not the second."""
    bench.put("orders", {"active": {"A": -5000, "B": -4000, "C": -3000}})
    with bench.ledger.write() as connection:
        refuse = f"WHEN NEW.job = '{job('B')}' BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        connection.exec_driver_sql(f"CREATE TRIGGER spoil BEFORE INSERT ON deaths {refuse}")
    text = """
- queues: orders
  handlers: [{name: tell, debug: told}]
  tasks:
    - {name: one, sweep: {limit: 1, max_stalled: 1, restart: count}, notify: tell}
"""
    ended = bench.play(text)
    tally = ended.tallies["orders"]
    assert (ended.status, tally.changed, tally.failed) == ("failed", 1, 1)
    assert bench.outcomes() == [("one", "failed"), ("tell", "ok")]
    assert bench.result("one")["dead"] >= 1


@pytest.mark.parametrize("error", [None, "half of it"])
def test_an_outcome_knows_whether_anything_changed(error: str | None) -> None:
    outcome = done(Result(True, 2, ["a", "b"], error=error), Decision(), 1)
    assert (outcome.status, outcome.changed) == (FAILED if error else CHANGED, True)
    whole = together([outcome, TaskOutcome(OK)])
    assert (whole.changed, whole.result["changed"]) == (True, True)
    after = failed("no", outcome)
    assert (after.status, after.changed, after.result["changed"]) == (FAILED, True, True)
    tally = RecapLine()
    tally.add(after)
    assert (tally.changed, tally.failed) == (1, 1)
    assert TaskOutcome.from_row(after.kept()).changed
    old: dict[str, Any] = {"status": CHANGED, "message": "of an earlier version"}
    assert TaskOutcome.from_row(old).changed


def test_the_diff_is_of_what_was_done(bench: Bench) -> None:
    bench.put("orders", {"dead": {"A": "x", "B": "x", "C": "x"}})

    def confirm(_asked: Confirmation) -> bool:  # one of them lives again before the answer is there
        jobs.reprocess(Queue(bench.server, "orders"), job("B"))
        return True

    text = "- {queues: orders, tasks: [{name: drop, remove: {all: true}}, {name: none, requeue: {all: true}}]}\n"
    ended = bench.play(text, asks=Asks(confirm=confirm))
    assert ended.status == "done"
    outcomes = {e.task.name: e.outcome for e in bench.said if isinstance(e, TaskEnded)}
    assert [letter(what) for what, _, _ in outcomes["drop"].diff] == ["A", "C"]
    assert (outcomes["drop"].count, outcomes["none"].diff) == (2, [])


def test_the_diff_of_a_sweep_is_of_the_sweep() -> None:
    foretold = Decision(CHANGE, 2, ["a", "b"], diff=[("a", "active", "dead"), ("b", "active", "dead")])
    did = Result(True, 2, ["a", "b"], diff=[("a", "active", "pending"), ("b", "active", "pending")])
    assert {after for _, _, after in done(did, foretold, 1).diff} == {"pending"}
