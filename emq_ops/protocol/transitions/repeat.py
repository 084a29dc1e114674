"""Repeatables: templates that become a job every so often."""

from __future__ import annotations

from dataclasses import dataclass, field

from emq_ops.protocol.errors import BadInputError, DamagedError, one_line
from emq_ops.protocol.ids import job_id, mint
from emq_ops.protocol.queue import Queue, blob, not_negative, positive
from emq_ops.protocol.scores import score_ms


@dataclass(frozen=True, slots=True)
class Repeatable:
    """`next_ms`: when its next occurrence is due, unix ms."""

    name: str
    every_ms: int
    template: bytes
    next_ms: int


def _name(name: str) -> str:
    if not name or len(name.encode("utf-8")) > 200 or any(ord(c) < 32 or c in "{}" for c in name):
        raise BadInputError(f"'{one_line(name[:40])}' can't name a repeatable", fix="1 to 200 bytes, no braces")
    return name


def register(q: Queue, name: str, every_ms: int, template: bytes | str, *, first_in_ms: int = 0) -> bool:
    """Registers a repeatable; its first occurrence is due after `first_in_ms` (at once). False: the name lives."""
    keys = [q.keys.repeat, q.keys.repeatable(_name(name))]
    args = (name, positive(every_ms, "every_ms"), blob(template, "template"), not_negative(first_in_ms, "first_in_ms"))
    return bool(q.run("repeat_register", keys, *args))


def replace(q: Queue, name: str, every_ms: int, template: bytes | str) -> bool:
    """Registers a repeatable, due at once, or gives a living one another period and template (False): its next
    occurrence stays where it is, but is never further away than one period."""
    keys = [q.keys.repeat, q.keys.repeatable(_name(name))]
    return bool(q.run("repeat_replace", keys, name, positive(every_ms, "every_ms"), blob(template, "template")))


def cancel(q: Queue, name: str) -> bool:
    """Cancels a repeatable. False: there is none of that name."""
    return bool(q.run("repeat_cancel", [q.keys.repeat, q.keys.repeatable(_name(name))], name))


def skip(q: Queue, name: str, every_ms: int) -> bool:
    """Puts the next occurrence a period from now; the one that was due does not come. False: none of that name."""
    keys = [q.keys.repeat, q.keys.repeatable(_name(name))]
    return bool(q.run("repeat_skip", keys, name, positive(every_ms, "every_ms")))


def due(q: Queue, limit: int = 100) -> list[str]:
    """The names that are due by the server's clock, longest due first."""
    names = q.run("repeat_due", [q.keys.repeat], positive(limit, "limit"), readonly=True)
    return [name.decode("utf-8", "surrogateescape") for name in names]


def advance(q: Queue, name: str, job: str) -> bool:
    """Enqueues one due occurrence as the fresh `job` and sets the next instant, a period from now. False: not due any
    more, or gone."""
    keys = [q.keys.repeat, q.keys.repeatable(_name(name)), q.keys.row(job), q.keys.pending]
    return int(q.run("repeat_advance", keys, name, job_id(job))) > 0


@dataclass(slots=True)
class Fired:
    """`jobs`: the occurrences that were admitted; `bad`: repeatables that can't fire, by name, and why."""

    jobs: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)


def fire(q: Queue, limit: int = 100) -> Fired:
    """Fires what is due, up to `limit`: one occurrence each, however long it has been due. One that can't fire holds up
    no other."""
    found = Fired()
    for name in due(q, limit):
        job = mint()
        try:
            if advance(q, name, job):
                found.jobs.append(job)
        except DamagedError as refusal:
            found.bad[name] = refusal.what
    return found


def fields(q: Queue, name: str) -> tuple[bytes | None, bytes | None]:
    """Period (ms) and template as they stand, unchecked; None for what is not there."""
    every, template = q.server.read("HMGET", q.keys.repeatable(_name(name)), "every_ms", "template")
    return every, template


def _whole(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) <= 18 else 0


def repeatables(q: Queue) -> list[Repeatable]:
    """All repeatables, soonest first. `every_ms` is 0 where the hash says no number."""
    flat = q.server.read("ZRANGE", q.keys.repeat, 0, -1, "WITHSCORES")
    names = [name.decode("utf-8", "surrogateescape") for name in flat[::2]]
    keys = [q.keys.repeatable(name).encode("utf-8", "surrogateescape") for name in names]
    rows = q.server.read_many([("HMGET", key, "every_ms", "template") for key in keys])
    return [
        Repeatable(name, _whole(row[0]), row[1] or b"", score_ms(score))
        for name, row, score in zip(names, rows, flat[1::2], strict=True)
    ]
