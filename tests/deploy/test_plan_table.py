"""The planner is pure: a table of (desired, applied, live) -> steps, from a data file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from emq_ops.config.effective import Layers
from emq_ops.config.loader import load
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import SIGNS, DeadFacts, Interrupted, LiveQueue, LiveServer, Plan, Step, StreamBacklog
from emq_ops.deploy.plan_options import PlanOptions
from emq_ops.deploy.planner import plan
from emq_ops.deploy.render import value
from emq_ops.passes.lease.holder import Holder
from emq_ops.passes.lease.owner import ForeignQueueError
from emq_ops.protocol.errors import BadInputError

HOLDER = Holder("daemon", "b", "m", 7, "1", nonce="n")
DATA = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = yaml.load((DATA / "plans.yaml").read_text(), yaml.CSafeLoader)


def document(config: dict[str, Any] | None, folder: Path) -> Document:
    """The document of a config that is given as data; every queue in it is literal."""
    file = folder / "c.yaml"
    with file.open("w") as out:
        YAML(typ="safe", pure=True).dump(config or {}, out)
    loaded = load([file], {})
    layers = Layers(loaded)
    return Document.of(loaded, layers, layers.queues([]))


def live_of(case: dict[str, Any]) -> LiveServer:
    live = LiveServer()
    for queue, facts in (case.get("live") or {}).items():
        found = LiveQueue(
            settings=facts.get("settings", {}),
            foreign=ForeignQueueError(queue, "ours", facts["foreign"], HOLDER) if "foreign" in facts else None,
            rivals=facts.get("rivals", {}),
            damage=facts.get("damage", []),
        )
        if "dead" in facts:
            found.dead = DeadFacts(facts["dead"][0], tuple(facts["dead"][1:]), 0)
        found.streams = {n: StreamBacklog(s[0], s[1], fold=s[0]) for n, s in facts.get("streams", {}).items()}
        live.queues[queue] = found
    if "left" in case:
        left = {tuple(address.split("/", 1)): (pair[0], pair[1]) for address, pair in case["left"].items()}
        live.interrupted = Interrupted(1, "user@host:1", 0, len(left), 3, left)
    return live


def made(case: dict[str, Any], folder: Path) -> Plan:
    desired = document(case["desired"], folder)
    given = case["applied"]
    applied = None if given is None else desired if given == "same" else document(given, folder)
    kind = case.get("kind", "apply")
    return plan(desired, applied, live_of(case), PlanOptions({}, case.get("revert", ()), kind))


def seen(step: Step, expected: dict[str, Any]) -> dict[str, Any]:
    """Of `step`, what the case speaks about."""
    whole = {
        "op": step.op,
        "fields": [f"{f.name}: {value(f.before)} -> {value(f.after)}" for f in step.fields],
        "write": None if step.write is None else f"{_said(step.write.expect)} -> {_said(step.write.value)}",
        "effect": step.effect,
        "loss": step.loss,
        "notes": step.notes,
    }
    return {name: whole[name] for name in expected}


def _said(raw: Any) -> str:
    return "null" if raw is None else value(raw)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_plan(case: dict[str, Any], tmp_path: Path) -> None:
    if "error" in case:
        with pytest.raises(BadInputError) as caught:
            made(case, tmp_path)
        assert str(caught.value) == case["error"]
        return
    got = made(case, tmp_path)
    expected = case["steps"]
    # Sections that every config has are left to the cases that speak of them.
    steps = [s for s in got.steps if s.queue is not None or f"{SIGNS[s.op]} {s.address}" in expected]
    assert [f"{SIGNS[s.op]} {s.address}" for s in steps] == list(expected)
    for step, want in zip(steps, expected.values(), strict=True):
        assert seen(step, want) == want
    assert [f"{d.address}: {value(d.applied)}, live {value(d.live)}" for d in got.drift] == case.get("drift", [])
    assert [str(refusal) for refusal in got.refusals] == case.get("refusals", [])
    assert [step.number for step in got.steps] == list(range(1, len(got.steps) + 1))


def test_a_glob_that_a_queue_shows_is_no_step_of_its_own(tmp_path: Path) -> None:
    config = {"queues": {"m-*": {"stalled": {"every": "10s"}}, "m-1": {}}}
    changed = {"queues": {"m-*": {"stalled": {"every": "20s"}}, "m-1": {}}}
    case = {"desired": changed, "applied": config}
    assert [step.address for step in made(case, tmp_path).steps] == ["m-1/stalled"]
    changed["queues"]["m-1"] = {"stalled": {"every": "10s"}}
    assert [step.address for step in made(case, tmp_path).steps] == ["m-*/stalled"]


def test_a_revision_of_an_earlier_version_tells_nothing_of_globs(tmp_path: Path) -> None:
    config = {"queues": {"m-*": {"stalled": {}}}}
    desired = document(config, tmp_path)
    earlier = Document({name: value for name, value in desired.data.items() if name != "globs"})
    assert plan(desired, earlier, LiveServer(), PlanOptions({})).empty
    assert Document.from_text(earlier.text).globs is None
    assert Document.from_text(desired.text).data == desired.data
