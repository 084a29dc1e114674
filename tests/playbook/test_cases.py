"""Every feature by a data-driven case: playbook, queues before, recap and queues after (see ``cases/``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from emq_ops.playbook.context import QueuePolicy
from tests.playbook.bench import Bench, job, lane

CASES = Path(__file__).parent / "cases"


def load(name: str) -> list[Any]:
    """The cases of a file, as pytest parameters."""
    found = yaml.load((CASES / f"{name}.yaml").read_text(), yaml.CSafeLoader)  # ten times as fast
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in found]


def spelled(text: str) -> str:
    """A playbook with ``@A`` spelled out: a job, or a lane after ``lane:``."""
    text = re.sub(r'(lane: "?)@([A-Z])\b', lambda m: m[1] + lane(m[2]), text)
    return re.sub(r"@([A-Z])\b", lambda m: job(m[1]), text)


def set_up(bench: Bench, case: dict[str, Any]) -> None:
    for queue, words in case.get("given", {}).items():
        bench.put(queue, words)
    for name, text in case.get("files", {}).items():
        bench.write(text, name.removeprefix("books/"))
    bench.policy = QueuePolicy(**case.get("policy", {}))
    bench.configured = case.get("configured", ())


@pytest.mark.parametrize("case", load("language") + load("select") + load("modules"))
def test_case(bench: Bench, case: dict[str, Any]) -> None:
    set_up(bench, case)
    before = bench.keyspace()
    options = dict(case.get("options", {}))
    if "start_at" in options:
        options["start_at"] = options["start_at"].replace("@BOOK", str(bench.folder / "book.yaml"))
    options["extra"] = [text.replace("@FOLDER", f"@{bench.folder}") for text in options.get("extra", [])]
    ended = bench.play(spelled(case["playbook"]), environ=case.get("env"), **options)
    assert (ended.status, ended.reason) == (case.get("status", "done"), "")
    for queue, wanted in case.get("recap", {}).items():
        found = ended.tallies[queue].as_row()
        assert {name: found[name] for name in wanted} == wanted, (queue, bench.outcomes(queue))
    if "recap" in case:
        assert set(ended.tallies) == set(case["recap"])
    for task, text in case.get("says", {}).items():
        assert bench.message(task) == text
    for task, wanted in case.get("results", {}).items():
        found = bench.result(task)
        assert {name: found[name] for name in wanted} == wanted
    for queue, names in case.get("order", {}).items():
        assert [name for name, _ in bench.outcomes(queue)] == names
    if case.get("then") == "same":
        assert bench.keyspace() == before
    else:
        for queue, words in case.get("then", {}).items():
            assert bench.seen(queue) == words
