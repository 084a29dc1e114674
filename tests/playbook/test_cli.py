"""``emq-ops play`` as it is typed: outputs, exit codes, listings, asking, resuming, signals."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import sys
from typing import Any

import pytest

from tests.playbook.bench import Bench, job
from tests.playbook.place import BOOK, run

MODULES = (
    "sweep", "reap", "promote", "trim_dead", "archive", "audit", "requeue", "remove", "rehydrate", "pause", "resume",
    "limit_lane", "weight_lane", "drain", "obliterate", "cancel", "extend", "reassign", "stream_append", "stream_trim",
    "delay_jobs", "maintenance", "wait_for", "assert", "set_fact", "debug", "fail",
)  # fmt: skip


def test_a_table_as_ansible_draws_it(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("book.yaml", "--queues", "orders", "--yes", "--diff") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[2].startswith("PLAY [First] ***")
    assert "TASK [look] " + "*" * 66 in out
    assert "ok: [orders] => 1 dead: 1 error" in out
    assert f"changed: [orders] => 2: {job('A')}, {job('B')}" in out
    assert "    paused: no -> yes" in out
    assert "orders : ok=4    changed=2    skipped=0    failed=0    rescued=0" in out
    assert out[-1].endswith(" done")
    assert place.seen("orders") == {"dead": ["C"], "paused": True, "rows": 1}


def shown(terminal: int) -> str:
    """All that was written on the other side of a terminal, which is closed by now."""
    parts = []
    with contextlib.suppress(OSError):  # its end, on Linux
        while part := os.read(terminal, 1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


def test_colours_on_a_terminal_say_what_the_words_say(place: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    said = []
    for colour in (True, False):
        ours, theirs = os.openpty()
        with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            if not colour:
                patch.setenv("NO_COLOR", "1")
            assert run("book.yaml", "--check", "-l", "orders") == 0
        said.append(shown(ours))
        os.close(ours)
    assert "\x1b[33mwould change: [orders] => paused\x1b[0m" in said[0]
    assert "\x1b" not in said[1]
    plain = [re.sub(r"\x1b\[[0-9;]*m|RUN\w+", "", text) for text in said]
    assert plain[0] == plain[1]


def test_json(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    place.put("mail", {"pending": ["D"]})
    assert run("book.yaml", "--check", "--output", "json") == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["check"], document["status"]) == (True, "failed")
    assert document["recap"]["orders"] == {
        "ok": 4, "changed": 2, "skipped": 0, "failed": 0, "rescued": 0, "unknown": 0,
    }  # fmt: skip
    # `mail` is protected: it can be paused, and not drained.
    assert (document["recap"]["mail"]["changed"], document["totals"]["failed"]) == (1, 1)
    tasks = {task["name"]: task for task in document["plays"][0]["tasks"]}
    assert tasks["drop"]["queues"]["orders"]["items"] == [job("A"), job("B")]
    assert tasks["drop"]["where"] == "book.yaml:7:7"


def test_a_check_that_predicts_changes_is_fine(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    before = place.keyspace()
    assert run("book.yaml", "--check", "-l", "orders", "--output", "jsonl") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [e["event"] for e in events] == ["run_started", "play_started", *["task_ended"] * 4, "run_ended"]
    assert events[-1]["recap"]["orders"]["changed"] == 2
    assert place.keyspace() == before


def test_csv(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("book.yaml", "--skip-tags", "change", "--output", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["queue"]: row["ok"] for row in rows} == {"mail": "2", "orders": "2"}


def test_asking(place: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert run("book.yaml", "-l", "orders") == 1
    captured = capsys.readouterr()
    assert "orders: drain would change 2, 2 jobs would go for good" in captured.err
    assert "not confirmed; go on with: emq-ops play --resume RUN" in captured.err
    assert place.seen("orders")["pending"] == ["A", "B"]
    run_id = captured.err.rsplit(" ", 1)[1].strip()
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert run("--resume", run_id) == 0
    captured = capsys.readouterr()
    assert "changed: [orders] => paused (done before the resume)" in captured.out
    assert place.seen("orders") == {"dead": ["C"], "paused": True, "rows": 1}
    assert run("--resume", run_id) == 4
    assert "ended (done); only one that failed or was interrupted goes on" in capsys.readouterr().err


def test_a_failed_run_goes_on_once_its_cause_is_mended(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    place.put("mail", {"pending": ["D"]})
    assert run("book.yaml", "--yes") == 2
    captured = capsys.readouterr()
    assert "failed: [mail] => queue 'mail' is protected; drain is refused" in captured.out
    assert "1 of 2 queues failed; with the cause mended, go on with: emq-ops play --resume RUN" in captured.err
    run_id = captured.err.rsplit(" ", 1)[1].strip()
    place.put("orders", {"pending": ["E"]})  # comes later, to a queue that was done
    config = place.folder / "config.yaml"
    config.write_text(config.read_text().replace("protect: true", "protect: false"))
    assert run("--resume", run_id, "--yes") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "changed: [mail] => 1: " + job("D") in captured.out
    assert "changed: [orders] => 2: " + f"{job('A')}, {job('B')} (done before the resume)" in captured.out
    assert (place.seen("mail"), place.seen("orders")["pending"]) == ({"paused": True}, ["E"])


def test_nothing_to_remove_asks_nothing(place: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run("book.yaml", "-l", "orders", "--skip-tags", "hard") == 0
    (place.folder / "empty.yaml").write_text("- {queues: mail, tasks: [{drain: }]}\n")
    assert run("empty.yaml") == 0


def test_step(place: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\nn\nc\n"))
    assert run("book.yaml", "-l", "orders", "--step", "--yes") == 0
    assert "skipping: [orders] => skipped by --step" in capsys.readouterr().out
    assert place.seen("orders") == {"dead": ["C"], "rows": 1}


def test_step_with_nobody_to_answer(
    place: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    before = place.keyspace()
    assert run("book.yaml", "-l", "orders", "--step", "--yes") == 4
    assert capsys.readouterr().err.splitlines()[-1].endswith("--step: nobody answers (run it in a terminal)")
    assert place.keyspace() == before


def test_listings(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("book.yaml", "--list-tasks", "--tags", "change", "--output", "json") == 0
    assert [row["task"] for row in json.loads(capsys.readouterr().out)] == ["stop", "drop"]
    assert run("--list", "--output", "json") == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert names == sorted(
        [
            "restart-recovery",
            "deploy-window",
            "dead-letter-triage",
            "drain-and-retire",
            "archive-catch-up",
            "health-check",
        ]
    )
    assert run("--modules") == 0
    listed = capsys.readouterr().out
    for name in (*MODULES, "include"):
        assert f"\n{name} " in listed
    assert run("--modules", "requeue") == 0
    page = capsys.readouterr().out
    assert "check mode: would change (how many, which), or would not" in page
    assert "rate: jobs a second (a whole number, 1 or more; default 500)" in page
    assert run("--modules", "swep") == 4
    assert "did you mean 'sweep'?" in capsys.readouterr().err


def test_every_module_documents_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--modules", "--output", "json") == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    for row in rows:
        assert row["summary"].endswith(".")
        assert row["check"]
        for option in row.get("options", []):
            assert option["doc"]
            assert option["type"]


def test_the_schema_takes_what_ships(capsys: pytest.CaptureFixture[str]) -> None:
    from jsonschema import Draft202012Validator  # of the test extra, by way of moto

    from emq_ops.playbook import source
    from emq_ops.playbook.play import shipped

    assert run("--schema") == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for path in shipped().values():
        validator.validate(source.read(path, path.name)[0].data())
    for bad in (
        [{"queues": "*", "tasks": [{"swep": {}}]}],
        [{"queues": "*", "tasks": [{"sweep": {"max_stall": 1}}]}],
        [{"queues": "*", "tasks": [{"pause": None, "resume": None}]}],
        [{"queues": "*", "tasks": [{"limit_lane": {"lane": "x"}}]}],
        [{"hosts": "*", "tasks": [{"pause": None}]}],
    ):
        assert not validator.is_valid(bad)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], "which playbook?"),
        (["nope.yaml"], "nope.yaml: there is no such playbook"),
        (["health-chek"], "did you mean 'health-check'?"),
        (["book.yaml", "-e", "x"], "-e: 'x' sets no variable"),
        (["book.yaml", "--queues", ""], "a queue pattern is empty"),
        (["book.yaml", "--tags", ""], "--tags: a tag is empty"),
        (["book.yaml", "--skip-tags", "change,"], "--skip-tags: a tag is empty"),
        (["x" * 5000], "there is no such playbook"),
        (["book.yaml", "--resume", "RUN0STBBIRAKHo"], "no run of a playbook is called RUN0STBBIRAKHo"),
        (["book.yaml", "--resume", "RUN0STBBIRAKHo", "--tags", "change"], "a resumed run keeps what it was asked"),
        (["book.yaml", "--resume", "x"], "malformed id 'x'"),
        (["bad.yaml"], "bad.yaml:3:7: unknown module 'swep' (did you mean 'sweep'?)"),
    ],
)
def test_bad_input_is_one_line_and_exit_4(
    argv: list[str], line: str, place: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    (place.folder / "bad.yaml").write_text("- queues: orders\n  tasks:\n    - swep:\n")
    before = place.keyspace()
    assert run(*argv) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err
    assert captured.err.count("\n") == 1
    assert place.keyspace() == before


def test_bad_input_found_on_the_way(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    - queues: orders
      handlers: [{name: undo, resume: }]
      tasks:
        - {pause: , notify: undo, register: p}
        - block: [{debug: x, when: p.count}]
          rescue: [{debug: never}]
          always: [{name: anyway, debug: x}]
        - debug: never
    """
    (place.folder / "late.yaml").write_text(text)
    assert run("late.yaml") == 4
    captured = capsys.readouterr()
    assert "late.yaml:6:36: 'when' must be true or false, 'p.count' is the number 1" in captured.err
    assert "never" not in captured.out
    assert "TASK [anyway]" in captured.out
    assert "paused" not in place.seen("orders")


def test_a_changed_playbook_is_not_resumed(
    place: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run("book.yaml", "-l", "orders") == 1
    run_id = capsys.readouterr().err.rsplit(" ", 1)[1].strip()
    (place.folder / "book.yaml").write_text(BOOK + "\n# more\n")
    assert run("--resume", run_id, "--yes") == 4
    assert f"was changed since run {run_id} began" in capsys.readouterr().err


def test_a_server_that_is_not_there(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("book.yaml", "--url", f"unix://{place.folder}/none") == 3
    assert capsys.readouterr().err.count("\n") == 1
