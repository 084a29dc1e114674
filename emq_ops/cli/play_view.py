"""How a run of a playbook looks: live lines as Ansible's users know them, one JSON document, JSON lines, or CSV."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from emq_ops.cli.output import emit_rows
from emq_ops.cli.table import cell, plain
from emq_ops.playbook import events
from emq_ops.playbook.outcome import CHANGED, FAILED, OK, SKIPPED, RecapLine, TaskOutcome
from emq_ops.protocol.errors import one_line
from emq_ops.protocol.terminal import takes_colour

RECAP = ("ok", "changed", "skipped", "failed", "rescued")
SHOWN = 5
DIFF_LINES = 20
_WIDTH = 78
_COLOURS = {OK: "32", CHANGED: "33", SKIPPED: "36", FAILED: "31", "head": "1", "dim": "2"}


class PlayView(Protocol):
    """Takes events; `close` after the last."""

    def __call__(self, event: events.PlayEvent) -> None: ...

    def close(self) -> None:
        """Writes what is only known at the end."""


def view_of(output: str, *, diff: bool) -> PlayView:
    """The view for ``--output``."""
    if output == "table":
        return LiveView(diff=diff)
    return JsonLinesView() if output == "jsonl" else DocumentView(output)


class LiveView:
    """Lines on stdout, as things happen. Says in words what it says in colour."""

    def __init__(self, *, diff: bool) -> None:
        self._out, self._diff = sys.stdout, diff
        self._colour = takes_colour(self._out)
        self._lock = threading.Lock()
        self._check = False

    def __call__(self, event: events.PlayEvent) -> None:
        lines = self._lines(event)
        if lines:
            with self._lock:
                self._out.write("\n".join(lines) + "\n")
                if not isinstance(event, events.TaskEnded) or self._out.isatty():
                    self._out.flush()

    def close(self) -> None:
        """All is written already."""
        self._out.flush()

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self._colour else text

    def _head(self, text: str) -> str:
        return self._styled(f"{text} ".ljust(_WIDTH, "*"), "head")

    def _lines(self, event: events.PlayEvent) -> list[str]:
        match event:
            case events.RunStarted():
                self._check = event.check
                word = "goes on with" if event.resumed else "checks (nothing is changed)" if event.check else "runs"
                return [self._styled(f"{event.run} {word} {one_line(event.playbook)}", "dim")]
            case events.PlayStarted():
                names = ", ".join(map(one_line, event.queues[:SHOWN])) + (" ..." if len(event.queues) > SHOWN else "")
                return ["", self._head(f"PLAY [{event.play.name}]"), f"{_queues(len(event.queues))}: {names}"]
            case events.BatchStarted():
                return ["", f"batch {event.number} of {event.count}: {_queues(len(event.queues))}"]
            case events.TaskStarted():
                return ["", self._head(f"{'HANDLER' if event.handler else 'TASK'} [{event.task.name}]")]
            case events.TaskEnded():
                return self._ended(event)
            case events.Progress():
                return [self._styled(f"      [{one_line(event.queue)}] {one_line(event.text)}", "dim")]
            case events.PlayStopped():
                return [self._styled(f"the play ends here: {event.reason}", FAILED)]
            case events.RunEnded():
                return self._recap(event)
        return []

    def _ended(self, event: events.TaskEnded) -> list[str]:
        outcome = event.outcome
        words = {OK: "ok", CHANGED: "would change" if self._check else "changed", SKIPPED: "skipping", FAILED: "failed"}
        word = words.get(outcome.status)
        if word is None:
            return []
        said = said_of(outcome, event.queue, check=self._check)
        line = f"{word}: [{one_line(event.queue)}]" + (f" => {said}" if said else "")
        lines = [self._styled(line + (" (done before the resume)" if event.replayed else ""), outcome.status)]
        if self._diff and outcome.status in (CHANGED, FAILED):
            for what, before, after in outcome.diff[:DIFF_LINES]:
                lines.append(f"    {one_line(str(what))}: {_side(before)} -> {_side(after)}")
            if len(outcome.diff) > DIFF_LINES:
                lines.append(f"    ... and {len(outcome.diff) - DIFF_LINES} more")
        return lines

    def _recap(self, event: events.RunEnded) -> list[str]:
        lines = ["", self._head("CHECK RECAP" if self._check else "PLAY RECAP")]
        width = max((len(one_line(queue)) for queue in (*event.tallies, *event.not_begun)), default=0)
        for queue, tally in event.tallies.items():
            style = FAILED if tally.failed else CHANGED if tally.changed else OK
            numbers = " ".join(f"{name}={getattr(tally, name):<4}" for name in RECAP).rstrip()
            unknown = f" unknown={tally.unknown}" if tally.unknown else ""
            lines.append(f"{self._styled(one_line(queue).ljust(width), style)} : {numbers}{unknown}")
        lines += [self._styled(f"{one_line(queue).ljust(width)} : not begun", SKIPPED) for queue in event.not_begun]
        return [*lines, self._styled(f"{event.run} {event.status}", "dim")]


def _queues(number: int) -> str:
    return "1 queue" if number == 1 else f"{number} queues"


def _side(value: Any) -> str:
    return "none" if value is None else cell(value)


def said_of(outcome: TaskOutcome, queue: str, *, check: bool) -> str:
    """What a line says of an outcome on `queue`: its message, how many, and the first of which."""
    parts = [one_line(outcome.message)] if outcome.message else []
    if outcome.unknown:
        parts.append("cannot know beforehand" if check else "it can't be known whether anything changed")
    if outcome.status == CHANGED and outcome.count and outcome.items != [queue]:
        listed = len(outcome.items) >= min(outcome.count, SHOWN)  # else they name something else than was counted
        names = ", ".join(map(one_line, outcome.items[:SHOWN]))
        more = f" and {outcome.count - SHOWN} more" if outcome.count > SHOWN and listed else ""
        parts.append(f"{outcome.count}: {names}{more}" if listed else names or str(outcome.count))
    if outcome.attempts > 1:
        parts.append(f"{outcome.attempts} tries")
    return "; ".join(parts)


def outcome_row(outcome: TaskOutcome, *, replayed: bool) -> dict[str, Any]:
    """An outcome as plain data."""
    row = outcome.as_row()
    row["diff"] = [{"what": what, "before": before, "after": after} for what, before, after in outcome.diff]
    return row | {"failed": outcome.status == FAILED, "replayed": replayed}


def recap_row(tallies: Mapping[str, RecapLine]) -> dict[str, dict[str, int]]:
    """The recap as plain data, by queue."""
    return {queue: tally.as_row() for queue, tally in tallies.items()}


class DocumentView:
    """Everything at the end: one JSON document, or the recap as CSV."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._plays: list[dict[str, Any]] = []
        self._document: dict[str, Any] = {}
        self._tasks: dict[str, dict[str, Any]] = {}

    def __call__(self, event: events.PlayEvent) -> None:
        match event:
            case events.RunStarted():
                self._document = {"run": event.run, "playbook": event.playbook, "check": event.check}
                self._document["resumed"] = event.resumed
            case events.PlayStarted():
                self._tasks = {}
                self._plays.append({"name": event.play.name, "queues": event.queues, "tasks": []})
            case events.TaskEnded():
                task = self._tasks.get(event.task.key)
                if task is None:
                    task = {"name": event.task.name, "module": event.task.module.name, "where": str(event.task.pos)}
                    task |= {"queues": {}}
                    self._tasks[event.task.key] = task
                    self._plays[-1]["tasks"].append(task)
                task["queues"][event.queue] = outcome_row(event.outcome, replayed=event.replayed)
            case events.PlayStopped():
                self._plays[-1]["stopped"] = event.reason
            case events.RunEnded():
                recap = recap_row(event.tallies)
                totals = {name: sum(row[name] for row in recap.values()) for name in (*RECAP, "unknown")}
                self._document |= {"status": event.status, "reason": event.reason, "plays": self._plays}
                self._document |= {"recap": recap, "totals": totals, "not_begun": list(event.not_begun)}

    def close(self) -> None:
        """Writes the document."""
        if self._output == "csv":
            rows = [{"queue": queue, **row} for queue, row in self._document.get("recap", {}).items()]
            emit_rows(rows, "csv", ("queue", *RECAP))
        elif self._document:
            sys.stdout.write(json.dumps(plain(self._document), indent=2) + "\n")


class JsonLinesView:
    """An event a line, as it happens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, event: events.PlayEvent) -> None:
        row: dict[str, Any]
        match event:
            case events.RunStarted():
                row = {"event": "run_started", "run": event.run, "playbook": event.playbook, "check": event.check}
            case events.PlayStarted():
                row = {"event": "play_started", "play": event.play.name, "queues": event.queues}
            case events.TaskEnded():
                row = {"event": "task_ended", "play": event.play.name, "task": event.task.name, "queue": event.queue}
                row |= {"module": event.task.module.name, "where": str(event.task.pos)}
                row |= outcome_row(event.outcome, replayed=event.replayed)
            case events.Progress():
                row = {"event": "progress", "task": event.task.name, "queue": event.queue, "text": event.text}
            case events.PlayStopped():
                row = {"event": "play_stopped", "play": event.play.name, "reason": event.reason}
            case events.RunEnded():
                row = {"event": "run_ended", "run": event.run, "status": event.status, "reason": event.reason}
                row |= {"recap": recap_row(event.tallies), "not_begun": list(event.not_begun)}
            case _:
                return
        with self._lock:
            sys.stdout.write(json.dumps(plain(row), separators=(",", ":")) + "\n")
            sys.stdout.flush()

    def close(self) -> None:
        """All is written already."""
