"""Playbooks on a real server, and queues written and read in a few words.

A queue in words (`Words`): ``pending``, ``dead``, ``schedule`` ... of single-letter jobs::

    {pending: [A, B], lanes: {G: [C]}, active: {D: -5000}, schedule: {E: 60000}, dead: {F: boom}, paused: true}

The numbers are deadlines, ms from now; a dead job has its error. `Bench.put` writes it, `Bench.seen` reads it back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emq_ops.ledger.ledger import Ledger
from emq_ops.playbook import events
from emq_ops.playbook.asks import Asks
from emq_ops.playbook.context import Ops, QueuePolicy
from emq_ops.playbook.play import PlayOptions, prepare, resume
from emq_ops.playbook.runner import Ended
from emq_ops.protocol.ids import encode62
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.keyspace import dump

Words = dict[str, Any]
_BASE = 380_000_000_000_000_000


def job(letter: str) -> str:
    """The id of a job, mint order being alphabetical."""
    return "JOB" + encode62(_BASE + (ord(letter) << 22))


def lane(letter: str) -> str:
    """The id of a lane."""
    return "GRP" + encode62(_BASE + (ord(letter) << 22))


def letter(any_id: bytes | str) -> str:
    """Back from `job` or `lane`; an id that is none stays as it is."""
    text = any_id.decode() if isinstance(any_id, bytes) else any_id
    known = {make(chr(c)): chr(c) for make in (job, lane) for c in range(65, 91)}
    return known.get(text, text)


def lettered(value: Any) -> Any:
    """A result with every id in it as its letter."""
    if isinstance(value, dict):
        return {letter(k): lettered(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [lettered(v) for v in value]
    return letter(value) if isinstance(value, str | bytes) else value


@dataclasses.dataclass
class Bench:
    """A server, a ledger, a folder for playbooks, and what the last run said."""

    server: Server
    ledger: Ledger
    folder: Path
    policy: QueuePolicy = dataclasses.field(default_factory=QueuePolicy)
    configured: Sequence[str] = ()
    said: list[events.Event] = dataclasses.field(default_factory=list)
    extra_ops: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def ops(self) -> Ops:
        return Ops(self.server, self.ledger, lambda _queue: self.policy, self.configured, **self.extra_ops)

    def write(self, text: str, name: str = "book.yaml") -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def play(
        self, text: str, *, asks: Asks | None = None, environ: dict[str, str] | None = None, **options: Any
    ) -> Ended:
        """Runs a playbook, given as its text, or as the name of one that ships."""
        name = text if "\n" not in text else self.write(text)
        self.said = []
        given = PlayOptions(**options)
        return prepare(self.ops, name, given, environment=environ or {}, emit=self.said.append, asks=asks).run()

    def resume(self, run: str, *, environ: dict[str, str] | None = None, **kwargs: Any) -> Ended:
        self.said = []
        return resume(self.ops, run, environment=environ or {}, emit=self.said.append, **kwargs).run()

    def outcomes(self, queue: str = "orders") -> list[tuple[str, str]]:
        """(task, status) on one queue, as the last run said."""
        ended = [e for e in self.said if isinstance(e, events.TaskEnded) and e.queue == queue]
        return [(e.task.name, e.outcome.status) for e in ended]

    def result(self, task: str, queue: str = "orders") -> dict[str, Any]:
        """What a task left for `register`, ids as letters."""
        for e in self.said:
            if isinstance(e, events.TaskEnded) and e.queue == queue and e.task.name == task:
                return dict(lettered(e.outcome.result))
        raise AssertionError(f"no task {task} ran on {queue}")

    def message(self, task: str, queue: str = "orders") -> str:
        """What a task said."""
        return str(self.result(task, queue)["msg"])

    # -- queues in words -----------------------------------------------------------------------------------------------

    def put(self, queue: str, words: Words) -> None:
        """Writes a queue."""
        q = Queue(self.server, queue)
        k, now, write = q.keys, self.server.now_ms(queue), self.server.write

        def row(name: str, state: str, **fields: str) -> None:
            values = {"state": state, "attempts": "1", "payload": f"p{name}", **fields}
            write("HSET", k.row(job(name)), *[x for pair in values.items() for x in pair])

        for name in words.get("pending", []):
            write("ZADD", k.pending, 0, job(name))
            row(name, "pending", attempts="0")
        for group, names in words.get("lanes", {}).items():
            for name in names:
                write("ZADD", k.lane(lane(group)), 0, job(name))
                row(name, "pending", attempts="0", group=lane(group))
            write("RPUSH", k.ring, lane(group))
        for name, ms in words.get("active", {}).items():
            write("ZADD", k.active, now + ms, job(name))
            row(name, "active")
        for name, ms in words.get("schedule", {}).items():
            write("ZADD", k.schedule, now + ms, job(name))
            row(name, "scheduled")
        for name, error in words.get("dead", {}).items():
            write("ZADD", k.dead, 0, job(name))
            row(name, "dead", last_error=error, **({"stalled": "1"} if error == "stalled" else {}))
        if words.get("paused"):
            write("HSET", k.meta, "paused", "1")
        for name, count in words.get("streams", {}).items():
            for number in range(1, count + 1):
                write(
                    "XADD", k.stream(name), f"{1_722_945_600_000 + number}-0", "job", job("A"), "outcome", "completed"
                )

    def seen(self, queue: str) -> Words:
        """Reads a queue back; only what is there."""
        q = Queue(self.server, queue)
        k, read = q.keys, self.server.read
        out: Words = {}
        for word in ("pending", "active", "schedule", "dead"):
            names = sorted(letter(i) for i in read("ZRANGE", getattr(k, word), 0, -1))
            if names:
                out[word] = names
        lanes = {
            key.split(b":g:")[1].split(b":")[0]: read("ZRANGE", key, 0, -1)
            for key in self.server.scan(k.base.replace("[", "\\[") + "g:*:pending")
        }
        if lanes:
            out["lanes"] = {letter(g): sorted(letter(i) for i in ids) for g, ids in lanes.items()}
        if read("HEXISTS", k.meta, "paused"):
            out["paused"] = True
        paused = sorted(letter(i) for i in read("SMEMBERS", k.paused))
        if paused:
            out["paused_lanes"] = paused
        limits = read("HGETALL", k.glimit)
        if limits:
            out["limits"] = {letter(g): int(n) for g, n in zip(limits[::2], limits[1::2], strict=True)}
        rows = sum(1 for key in self.server.scan(k.base.replace("[", "\\[") + "job:*") if key.count(b":") == 3)
        if rows:
            out["rows"] = rows
        return out

    def keyspace(self) -> dict[str, dict[str, Any]]:
        """Everything but this tool's own keys."""
        return {key: value for key, value in dump(self.server).items() if not key.startswith("emq-ops:")}
