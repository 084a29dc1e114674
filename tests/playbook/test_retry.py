"""A run that failed goes on from the task that failed, once the cause is mended (see ``cases/retry.yaml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger.ledger import open_ledger
from emq_ops.playbook.context import QueuePolicy
from emq_ops.playbook.events import TaskEnded
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server
from tests.playbook.bench import Bench
from tests.playbook.test_cases import load, set_up, spelled
from tests.support.postgres import Postgres


def anew(bench: Bench, queue: str) -> list[str]:
    """The tasks that the last run did on a queue itself, not in an earlier life."""
    ended = [e for e in bench.said if isinstance(e, TaskEnded) and e.queue == queue and not e.replayed]
    return [e.task.name for e in ended]


@pytest.mark.parametrize("case", load("retry"))
def test_goes_on_where_it_failed(bench: Bench, case: dict[str, Any]) -> None:
    set_up(bench, case)
    failed = bench.play(spelled(case["playbook"]))
    assert failed.status == "failed"
    for queue, names in case["failed"].items():
        assert [name for name, status in bench.outcomes(queue) if status == "failed"] == names
    again = bench.resume(failed.run)  # nothing was mended
    assert again.status == "failed"
    assert {q: t.as_row() for q, t in again.tallies.items()} == {q: t.as_row() for q, t in failed.tallies.items()}
    bench.policy = QueuePolicy()
    for queue in case.get("mend", {}):
        for key in list(bench.server.scan(f"emq:{{{queue}}}:*")):
            bench.server.write("UNLINK", key)
    ended = bench.resume(failed.run)
    assert (ended.status, ended.run) == ("done", failed.run)
    for queue, names in case["order"].items():
        assert anew(bench, queue) == names, queue
    for queue, wanted in case["recap"].items():
        found = ended.tallies[queue].as_row()
        assert {name: found[name] for name in wanted} == wanted, (queue, bench.outcomes(queue))
    for task, text in case.get("says", {}).items():
        assert bench.message(task) == text
    for queue, words in case.get("then", {}).items():
        assert bench.seen(queue) == words
    with pytest.raises(BadInputError, match="only one that failed or was interrupted goes on"):
        bench.resume(failed.run)


def test_a_check_that_failed_goes_on_as_a_check(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A", "B"]})
    bench.policy = QueuePolicy(max_removals=1)
    before = bench.keyspace()
    failed = bench.play("- queues: orders\n  tasks: [{name: drop, drain: }]\n", check=True)
    bench.policy = QueuePolicy()
    ended = bench.resume(failed.run)
    assert (failed.status, ended.status, ended.tallies["orders"].changed) == ("failed", "done", 1)
    assert bench.keyspace() == before


def test_in_postgresql_too(server: Server, postgres: Postgres, tmp_path: Path) -> None:
    with open_ledger(postgres.fresh()) as ledger:
        bench = Bench(server, ledger, tmp_path, QueuePolicy(max_removals=1))
        bench.put("orders", {"pending": ["A", "B"]})
        failed = bench.play(
            "- queues: orders\n  handlers: [{name: go on, resume: }]\n"
            "  tasks: [{name: hold, pause: , notify: go on}, {name: drop, drain: }]\n"
        )
        assert (failed.status, bench.resume(failed.run).status) == ("failed", "failed")
        bench.policy = QueuePolicy()
        assert bench.resume(failed.run).status == "done"
        assert bench.outcomes() == [("hold", "changed"), ("drop", "changed"), ("go on", "changed")]
