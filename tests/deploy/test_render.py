"""Golden outputs of the renderers. `python -m tests.deploy.test_render` writes them anew."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest

from emq_ops.deploy import render, render_markdown
from emq_ops.deploy.model import DeadFacts, Field, Interrupted, LiveQueue, LiveServer, Plan, Step, StreamBacklog
from emq_ops.deploy.plan_options import PlanOptions
from emq_ops.deploy.planner import plan
from tests.deploy.test_plan_table import DATA, document

GOLDEN = DATA / "golden"
HOSTILE = "\x1b[31mred | <b>bold</b> `tick`\nnext"
JOBS = [f"JOB0STBBIRAKH{c}" for c in "abcdefg"]

APPLIED = {
    "archive": {"remote": {"url": "file:/srv/bucket"}},
    "queues": {
        "mail": {"stalled": {"every": "30s"}, "dead": {"keep": 100}},
        "old": {"stalled": {}, "settings": {"concurrency": 5}},
        "orders": {
            "stalled": {"max_stalled": 1},
            "settings": {"paused": False, "rate": 10, "repeatables": {"nightly": {"every": "1d", "template": "{}"}}},
        },
    },
}
DESIRED = {
    "archive": {"remote": {"url": "file:/srv/bucket"}},
    "queues": {
        "mail": {"stalled": {"every": "30s"}, "dead": {"keep": 3, "archive": False}},
        "orders": {
            "stalled": {"max_stalled": 3, "jitter": "2s"},
            "streams": {"completions": {"keep": 1000}},
            "settings": {
                "paused": False,
                "rate": "${RATE:-10}",
                "concurrency": 50,
                "lanes": {"GRP0SSBKAh61tG": {"limit": 2}},
                "repeatables": {"nightly": {"every": "1d", "template": HOSTILE}},
            },
        },
    },
}


def sample(folder: Path) -> Plan:
    live = LiveServer()
    live.queues = {
        "mail": LiveQueue(dead=DeadFacts(10, tuple(JOBS), 0, ("1 held by a worker stay",))),
        "old": LiveQueue(settings={"concurrency": 5}),
        "orders": LiveQueue(
            settings={
                "paused": True,
                "rate": 10,
                "concurrency": 40,
                "lanes/GRP0SSBKAh61tG/limit": None,
                "repeatables/nightly": {"every": "1d", "template": "{}"},
            },
            streams={"completions": StreamBacklog(2500, 1500, fold=2500)},
            rivals={"recoverer": "seen 12 times"},
        ),
    }
    live.interrupted = Interrupted(7, "ops@host:4711", 1_772_000_000_000, 2, 5, {("orders", "concurrency"): (None, 40)})
    live.unmatched_optional = ["bulk-*"]
    made = plan(document(DESIRED, folder), document(APPLIED, folder), live, PlanOptions({}))
    made.base, made.made_ms = 3, 1_772_000_100_000
    return made


def drawn(made: Plan) -> dict[str, str]:
    return {
        "plan.txt": render.text(made),
        "plan.ansi": render.text(made, colour=True),
        "plan.json": json.dumps(render.as_json(made), indent=2) + "\n",
        "plan.md": render_markdown.markdown(made),
    }


@pytest.mark.parametrize("name", ["plan.txt", "plan.ansi", "plan.json", "plan.md"])
def test_golden(name: str, tmp_path: Path) -> None:
    assert drawn(sample(tmp_path))[name] == (GOLDEN / name).read_text("utf-8")


def test_strangers_can_not_steer_a_terminal_or_a_page(tmp_path: Path) -> None:
    made = drawn(sample(tmp_path))
    assert "\x1b" not in made["plan.txt"]
    assert "\x1b[31mred" not in made["plan.ansi"]
    assert "<b>" not in made["plan.md"]
    assert all(line.startswith(("|", "-", "#", "<", ">", "`", "J", "")) for line in made["plan.md"].splitlines())


def test_nothing_to_do_is_one_line(tmp_path: Path) -> None:
    same = document(DESIRED, tmp_path)
    made = plan(same, same, LiveServer(), PlanOptions({}))
    made.warnings.clear()
    assert render.text(made) == "Nothing to do.\n"
    assert render.as_json(made)["changes"] is False


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for file, text in drawn(sample(Path(temporary))).items():
            (GOLDEN / file).write_text(text, "utf-8")


def test_markdown_calls_nobody() -> None:
    hostile = (
        "@octocat #123 GH-5 https://evil.example www.evil.example 0123456789abcdef0123456789abcdef01234567 ![x](y)"
    )
    step = Step(1, "update", f"mail/{hostile}", "mail", "settings", [Field("rate", hostile, 2)], notes=[hostile])
    step.effect = {"dead": 1, "remove": 1, "ids": ["```", "@octocat"], "as_of": 0}
    text = render_markdown.markdown(Plan([step], [], [hostile], [hostile]))
    found = re.findall(r"@\w|#\d|GH-|://\w|www\.|[0-9a-f]{7,40}\b|!\[x\]", text)
    assert not found, found
    assert text.count("```") == 2
