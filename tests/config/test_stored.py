"""What earlier versions stored still says the same: revisions, policies of requests, and where each value is said.

`stored/*.json` was written by the code of b9c2e06 from the YAML beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emq_ops.config.effective import Layers
from emq_ops.config.loader import load
from emq_ops.config.policies import dead_policy, stalled_policy, stream_policy
from emq_ops.daemon.tasks import task_set
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import LiveServer
from emq_ops.deploy.plan_options import PlanOptions
from emq_ops.deploy.planner import plan
from emq_ops.passes.registry import PASSES
from emq_ops.policy.models import DeadPolicy, Policy, StalledPolicy, StreamPolicy
from emq_ops.policy.rows import as_row, from_row
from emq_ops.policy.scalars import parse_duration

STORED = Path(__file__).parent / "stored"
ENV = {"CC": "7", "SALT": "pepper", "KEEP": "12", "EVERY": "45s", "S3": "k", "LOCAL": "remote"}
OF_ARCHIVE = [one.section for one in PASSES if one.of_archive]
"""Sections that are on wherever there is an archive; revisions of earlier versions have none."""
LIVE = ["orders", "mail-1", "mail-2", "other"]


@pytest.fixture(params=["plain", "whole"])
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Any]]:
    monkeypatch.chdir(STORED)
    return Path(f"{request.param}.yaml"), json.loads((STORED / f"{request.param}.json").read_text())


def test_the_same_file_makes_the_same_revision(stored: tuple[Path, dict[str, Any]]) -> None:
    path, then = stored
    loaded = load([path], ENV)
    layers = Layers(loaded)
    now = Document.of(loaded, layers, layers.queues(LIVE))
    whole = json.loads(now.completed.text)
    for entry in [*whole["queues"].values(), *whole["globs"].values()]:
        for one in OF_ARCHIVE:
            entry.pop(one, None)
    shared = {key for kind in ("queues", "globs") for e in whole[kind].values() for key in _references(e)}
    whole["shared"] = {key: value for key, value in whole["shared"].items() if key in shared}
    whole.pop("order", None)  # of alike globs; earlier versions forgot it
    data = json.dumps({**whole, "base": "."}, sort_keys=True)
    stored_then = Document.from_compact(then["revision"]).completed  # keys that are new since, at their defaults
    assert json.loads(data.replace(f"{Path.cwd()}/", "")) == json.loads(stored_then.text)
    steps = plan(now, now_of(then, now), LiveServer(), PlanOptions(ENV)).steps
    # An archive that was there gets what sees to it as a change.
    assert {(step.op, step.kind) for step in steps} <= {("create", one) for one in OF_ARCHIVE}
    shown = {
        queue: [
            [v.path, v.value, f"{Path(v.mark.file).name}:{v.mark.line}"]
            for v in layers.effective(queue).values()
            if v.path.split(".")[0] not in OF_ARCHIVE
        ]
        for queue in now.queues
    }
    assert _measured(shown) == _measured(then["shown"])


def _measured(shown: dict[str, list[list[Any]]]) -> dict[str, list[list[Any]]]:
    """Durations in ms: earlier versions showed them in the largest unit that fits, not as they were written."""
    return {queue: [[path, _ms(value), mark] for path, value, mark in rows] for queue, rows in shown.items()}


def _ms(value: Any) -> Any:
    try:
        return parse_duration(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _references(entry: Any) -> list[str]:
    """The shared sections that an entry names."""
    if isinstance(entry, dict):
        return [key for value in entry.values() for key in _references(value)]
    return [entry] if isinstance(entry, str) else []


def now_of(then: dict[str, Any], now: Document) -> Document:
    """The stored revision, as applied from the folder of now."""
    text = json.dumps({**then["revision"], "base": now.data["base"]})
    for place in ("sqlite:///", "file:"):
        text = text.replace(f'"{place}.emq', f'"{place}{now.data["base"]}/.emq')
    return Document.from_text(text)


def test_a_stored_revision_gives_the_same_policies(stored: tuple[Path, dict[str, Any]]) -> None:
    _, then = stored
    document = Document.from_compact(then["revision"])
    assert json.loads(document.text) == then["revision"]
    found = {
        queue: {path: as_row(policy) for path, policy in policies(wanted).items()}
        for queue, wanted in document.queues.items()
    }
    assert found == then["policies"]
    assert not task_set(document, [*document.queues, "mail-new"], ENV).faults


def policies(wanted: dict[str, Any]) -> dict[str, Policy]:
    protect = bool(wanted.get("protect"))
    found: dict[str, Policy] = {}
    if "stalled" in wanted:
        found["stalled"] = stalled_policy(wanted["stalled"], ENV, protect=protect)
    if "dead" in wanted:
        found["dead"] = dead_policy(wanted["dead"], ENV, protect=protect)
    for name, fields in wanted.get("streams", {}).items():
        found[f"streams.{name}"] = stream_policy(fields, ENV, protect=protect)
    return found


def test_the_policy_of_a_stored_request_is_read_back(stored: tuple[Path, dict[str, Any]]) -> None:
    _, then = stored
    kinds: dict[str, type[Policy]] = {"stalled": StalledPolicy, "dead": DeadPolicy, "streams": StreamPolicy}
    for rows in then["policies"].values():
        for path, row in rows.items():
            assert as_row(from_row(kinds[path.split(".")[0]], row)) == row
