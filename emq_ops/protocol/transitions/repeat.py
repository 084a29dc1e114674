"""Repeatables: templates that become a job every so often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from emq_ops.protocol.errors import BadInputError, DamagedError, one_line
from emq_ops.protocol.ids import group_id, job_id, mint
from emq_ops.protocol.queue import Queue, blob, not_negative, positive
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.server import Arg


@dataclass(frozen=True, slots=True)
class Repeatable:
    """`next_ms`: when its next occurrence is due, unix ms; `lane`: where its occurrences wait (None: flat); `cron`,
    `zone`: of one that goes by the calendar."""

    name: str
    every_ms: int
    template: bytes
    next_ms: int
    lane: str | None = None
    cron: str = ""
    zone: str = ""


def _name(name: str) -> str:
    if not name or len(name.encode("utf-8")) > 200 or any(ord(c) < 32 or c in "{}" for c in name):
        raise BadInputError(f"'{one_line(name[:40])}' can't name a repeatable", fix="1 to 200 bytes, no braces")
    return name


def register(q: Queue, name: str, every_ms: int, template: bytes | str, *, first_in_ms: int = 0) -> bool:
    """Registers a repeatable; its first occurrence is due after `first_in_ms` (at once). False: the name lives."""
    keys = [q.keys.repeat, q.keys.repeatable(_name(name))]
    args = (name, positive(every_ms, "every_ms"), blob(template, "template"), not_negative(first_in_ms, "first_in_ms"))
    return bool(q.run("repeat_register", keys, *args))


def replace(q: Queue, name: str, every_ms: int, template: bytes | str, *, lane: str | None = None) -> bool:
    """Registers a repeatable, due at once, or gives a living one another period and template (False): its next
    occurrence stays where it is, but is never further away than one period. Its occurrences wait in `lane`; None: flat.
    """
    return _replace(q, name, positive(every_ms, "every_ms"), template, lane, "", "")


def replace_cron(q: Queue, name: str, cron: str, zone: str, template: bytes | str, *, lane: str | None = None) -> bool:
    """As `replace`, for one that goes by the calendar (`cron`: five fields, in `zone`). Only ours fire it: it stands
    under names of ours, where EchoMQ's pump does not look."""
    return _replace(q, name, "", template, lane, cron, zone)


def _replace(
    q: Queue, name: str, every: int | str, template: bytes | str, lane: str | None, cron: str, zone: str
) -> bool:
    group = "" if lane is None else group_id(lane)
    return bool(
        q.run("repeat_replace", _keys(q, name), q.keys.base, name, every, blob(template, "template"), group, cron, zone)
    )


def cancel(q: Queue, name: str) -> bool:
    """Cancels a repeatable. False: there is none of that name."""
    return bool(q.run("repeat_cancel", _keys(q, name), q.keys.base, name))


def skip(q: Queue, name: str, every_ms: int) -> bool:
    """Puts the next occurrence a period from now; the one that was due does not come. False: none of that name."""
    keys = [q.keys.repeat, q.keys.repeatable(_name(name))]
    return bool(q.run("repeat_skip", keys, q.keys.base, name, positive(every_ms, "every_ms")))


def _keys(q: Queue, name: str) -> list[str]:
    return [q.keys.repeat, q.keys.repeatable(_name(name)), q.keys.repeat_more(name), q.keys.calendar]


@dataclass(frozen=True, slots=True)
class DueRepeatable:
    """One that is due. `score`: as it was read, which firing compares; `cron`, `zone`: of one by the calendar."""

    name: str
    score: bytes
    cron: str = ""
    zone: str = ""


def look(q: Queue, key: str, limit: int = 100, *, past: int = 0) -> tuple[int, list[DueRepeatable]]:
    """The server's clock (unix ms), and up to `limit` repeatables that are due, longest due first, after `past` others.
    `key`: ``keys.repeat`` or ``keys.calendar``."""
    args = (q.keys.base, positive(limit, "limit"), not_negative(past, "past"))
    now, *flat = q.run("repeat_due", [key], *args, readonly=True)
    texts = [text.decode("utf-8", "surrogateescape") for text in flat]
    found = zip(texts[::4], flat[1::4], texts[2::4], texts[3::4], strict=True)
    return int(now), [DueRepeatable(*one) for one in found]


def due(q: Queue, limit: int = 100) -> list[str]:
    """The names that are due by the server's clock, longest due first; not those that go by the calendar."""
    return [one.name for one in look(q, q.keys.repeat, limit)[1]]


class FireReply(Enum):
    """What became of an attempt to fire: admitted; placed (by the calendar, its first instant is known now); somebody
    else did it, or it is not due; gone; bad (it can't fire, and was set aside)."""

    FIRED = 1
    PLACED = 2
    NOT_DUE = 0
    GONE = -1
    BAD = -2


def fire_keys(q: Queue, job: str) -> list[str]:
    """The keys of ``repeat_fire``."""
    k = q.keys
    return [k.lease, k.repeat, k.row(job), k.pending, k.calendar]


def fire_args(
    q: Queue, one: DueRepeatable, job: str, fence: Sequence[Arg] = ("", "", ""), following_ms: int | None = None
) -> list[Arg]:
    """The arguments of ``repeat_fire``; `fence`: state, token and run id of the lease; `following_ms`: the next instant
    of one that goes by the calendar."""
    following = "" if following_ms is None else following_ms
    name = one.name.encode("utf-8", "surrogateescape")
    return [*fence, q.keys.base, name, one.score, job_id(job), following]


def fire_reply(reply: Sequence[Any]) -> tuple[FireReply, str]:
    """What ``repeat_fire`` said, and why one is bad."""
    return FireReply(int(reply[0])), reply[1].decode("utf-8", "backslashreplace")


def advance(q: Queue, name: str, job: str) -> bool:
    """Enqueues one due occurrence of a repeatable with a period as the fresh `job` and sets the next instant, a period
    from now. False: not due any more, or gone. Raises DamagedError for one that can't fire (it is set aside)."""
    job_id(job)
    score = q.server.read("ZSCORE", q.keys.repeat, _name(name))
    return score is not None and _fire(q, DueRepeatable(name, score), job) is FireReply.FIRED


def _fire(q: Queue, one: DueRepeatable, job: str) -> FireReply:
    went, why = fire_reply(q.run("repeat_fire", fire_keys(q, job), *fire_args(q, one, job)))
    if went is FireReply.BAD:
        raise DamagedError(why, where=q.name, fix=f"emq-ops doctor {q.name}")
    return went


@dataclass(slots=True)
class Fired:
    """`jobs`: the occurrences that were admitted; `bad`: repeatables that can't fire, by name, and why."""

    jobs: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)


def fire(q: Queue, limit: int = 100) -> Fired:
    """Fires what is due and goes by a period, up to `limit`: one occurrence each, however long it has been due. One
    that can't fire holds up no other."""
    found = Fired()
    for one in look(q, q.keys.repeat, limit)[1]:
        job = mint()
        try:
            if _fire(q, one, job) is FireReply.FIRED:
                found.jobs.append(job)
        except DamagedError as refusal:
            found.bad[one.name] = refusal.what
    return found


def fields(q: Queue, name: str) -> tuple[bytes | None, bytes | None]:
    """Period (ms) and template as they stand, unchecked; None for what is not there."""
    every, template = q.server.read("HMGET", q.keys.repeatable(_name(name)), "every_ms", "template")
    return every, template


def _whole(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) <= 18 else 0


def repeatables(q: Queue, most: int | None = None) -> list[Repeatable]:
    """All repeatables, soonest first, those by the calendar last; `most`: so many of each at most. `every_ms` is 0
    where the hash says no number."""
    (names, scores), (dated, dates) = (_entries(q, key, most) for key in (q.keys.repeat, q.keys.calendar))
    rows = q.server.read_many([("HMGET", _raw(q.keys.repeatable(name)), "every_ms", "template") for name in names])
    said = [("HMGET", _raw(q.keys.repeat_more(name)), "lane", "template", "cron", "zone") for name in names + dated]
    more = [[part.decode("utf-8", "replace") if part else "" for part in one] for one in q.server.read_many(said)]
    found = [
        Repeatable(name, _whole(row[0]), row[1] or b"", score_ms(score), extra[0] or None)
        for name, row, score, extra in zip(names, rows, scores, more, strict=False)
    ]
    return found + [
        Repeatable(name, 0, extra[1].encode(), score_ms(score), extra[0] or None, extra[2], extra[3])
        for name, score, extra in zip(dated, dates, more[len(names) :], strict=True)
    ]


def _entries(q: Queue, key: str, most: int | None) -> tuple[list[str], list[bytes]]:
    flat = q.server.read("ZRANGE", key, 0, -1 if most is None else most - 1, "WITHSCORES")
    return [name.decode("utf-8", "surrogateescape") for name in flat[::2]], flat[1::2]


def _raw(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
