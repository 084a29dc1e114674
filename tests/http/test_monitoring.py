"""The files of examples/monitoring ask for metrics that there are, and their rules do as they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from emq_ops.http.metrics.families import HELP

EXAMPLES = Path(__file__).parents[2] / "examples/monitoring"


def metrics_of(expression: str) -> set[str]:
    """The families that an expression asks for."""
    found = re.findall(r"\bemq_[a-z_]+", expression)
    return {re.sub(r"_(total|info|bucket|sum|count)$", "", name) for name in found}


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    board = json.loads((EXAMPLES / "dashboard.json").read_text())
    asked = {panel["title"]: [metrics_of(each["expr"]) for each in panel["targets"]] for panel in board["panels"]}
    assert all(one and one <= HELP.keys() for some in asked.values() for one in some), asked
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    for variable in board["templating"]["list"]:
        assert metrics_of(json.dumps(variable["query"])) <= HELP.keys()


def test_the_rules_ask_for_metrics_that_there_are_and_say_what_to_do() -> None:
    [group] = yaml.safe_load((EXAMPLES / "rules.yml").read_text())["groups"]
    tested = (EXAMPLES / "rules_test.yml").read_text()
    for rule in group["rules"]:
        assert metrics_of(rule["expr"]) <= HELP.keys(), rule["alert"]
        assert rule["annotations"].keys() == {"summary", "what_to_do"}
        assert f"alertname: {rule['alert']}" in tested


def test_the_rules_fire_when_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        assert not os.environ.get("EMQ_OPS_CI"), "promtool is missing in CI"
        pytest.skip("promtool (Debian's package prometheus) is not here; CI has it")
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        ran = subprocess.run([promtool, *command], cwd=EXAMPLES, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stdout + ran.stderr
