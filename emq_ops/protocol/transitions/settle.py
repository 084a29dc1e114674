"""Settling a claim: complete it, or retry it after an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from emq_ops.protocol.connection.replies import reply_error
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.queue import Queue, blob, instant, not_negative, positive
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg

COMPLETIONS = "completions"
TOGETHER = 100
"""Completions in one step of the server: some ms of it."""


class Retried(Enum):
    """Where a retried job went."""

    SCHEDULED = "scheduled"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class CompletionRecord:
    """What is to be recorded with a settlement, by the same script.

    `outcome`: ``completed``, ``cancelled`` or ``dead``; `started_ms`: when the job was claimed, unix ms; `node`:
    0..1023, the writer's part of the ``EVT`` id.
    """

    outcome: str
    started_ms: int
    node: int
    result: bytes | None = None
    error: bytes | None = None
    group: str | None = None
    stream: str = COMPLETIONS

    def args(self, job: str, token: int) -> list[Arg]:
        """The node, then the record's fields as names and values; the script adds ``id`` and ``settled_at``."""
        if not 0 <= self.node <= 1023:
            raise BadInputError(f"node {self.node} is not within 0..1023")
        flat: list[Arg] = [self.node, "job", job, "outcome", self.outcome, "attempts", token]
        if self.group is not None:
            flat += ["group", self.group]
        if self.result is not None:
            flat += ["result", self.result]
        if self.error is not None:
            flat += ["error", self.error]
        return [*flat, "started_at", self.started_ms]


@dataclass(frozen=True, slots=True)
class Settlement:
    """A settlement that was not sent yet. See `complete`, `retry` and `delay_in` for what is asked."""

    script: str
    keys: list[str]
    args: tuple[Arg, ...]


def _tail(q: Queue, job: str, token: int, record: CompletionRecord | None) -> tuple[list[str], list[Arg]]:
    """The further keys and arguments of a settlement with a record; none for a bare one."""
    if record is None:
        return [], []
    return [q.keys.stream(record.stream)], record.args(job, token)


def _released(release: bool) -> str:
    return "release" if release else ""


def settle_many(q: Queue, settlements: Sequence[Settlement]) -> list[Any]:
    """Sends settlements in their order, a thousand a flush. Each place holds what the call returns, or its EmqError."""
    found: dict[int, Any] = {}
    places = [place for place, one in enumerate(settlements) if one.script == "complete"]
    told = complete_together(q, [(settlements[place].keys, settlements[place].args) for place in places])
    found.update(zip(places, told, strict=True))
    others = [(place, one) for place, one in enumerate(settlements) if one.script != "complete"]
    replies = q.server.run_each([(load(one.script), one.keys, one.args) for _, one in others])
    found.update((place, reply) for (place, _), reply in zip(others, replies, strict=True))
    return [
        found[place] if isinstance(found[place], EmqError) else _READ[one.script](found[place])
        for place, one in enumerate(settlements)
    ]


def complete_together(q: Queue, calls: Sequence[tuple[Sequence[str], Sequence[Arg]]]) -> list[Any]:
    """Sends calls of the script `complete`, TOGETHER of them in one step of the server: each is carried out whole or
    refused, as if it were alone. Each place holds its reply, or its EmqError."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, (keys, args) in enumerate(calls):
        alike.setdefault((tuple(keys[3:]), args[3], args[6] if len(args) > 6 else ""), []).append(place)
    chunks, batches = [], []
    for (stream, released, node), places in alike.items():
        for first in range(0, len(places), TOGETHER):
            chunk = places[first : first + TOGETHER]
            flat: list[Arg] = [q.keys.base, released, node]
            for _, args in (calls[place] for place in chunk):
                fields = args[7:]
                flat += [args[1], args[2], args[4], args[5], len(fields), *fields]
            chunks.append(chunk)
            batches.append(([q.keys.active, q.keys.completed, *stream], flat))
    found: dict[int, Any] = {}
    for chunk, reply in zip(chunks, q.run_many("complete_many", batches), strict=True):
        replies = [reply] * len(chunk) if isinstance(reply, EmqError) else reply
        found.update((place, _refusal(q, one)) for place, one in zip(chunk, replies, strict=True))
    return [found[place] for place in range(len(calls))]


def _refusal(q: Queue, reply: Any) -> Any:
    if not isinstance(reply, bytes):
        return reply
    return reply_error(reply.decode("utf-8", "replace"), q.server.where, script="complete_many")


def to_complete(
    q: Queue,
    job: str,
    token: int,
    *,
    result: bytes | str | None = None,
    release: bool = False,
    record: CompletionRecord | None = None,
) -> Settlement:
    """As `complete`, not sent yet."""
    k = q.keys
    if result is None and record is not None:
        result = record.result
    told = ["", ""] if result is None else ["result", blob(result, "result")]
    keys, args = _tail(q, job, token, record)
    call = (k.base, job_id(job), not_negative(token, "token"), _released(release), *told, *args)
    return Settlement("complete", [k.active, k.row(job), k.completed, *keys], call)


def complete(
    q: Queue,
    job: str,
    token: int,
    *,
    result: bytes | str | None = None,
    release: bool = False,
    record: CompletionRecord | None = None,
) -> bool:
    """Completes a job: its row goes. False: there is no row (and nothing is recorded).

    `result`: what its flow parent gets, if it has one (else the record's, else the job's id): in the same step where
    the parent is of this queue, else by the outbox (`flows.deliver`). `release`: the claimer's locks go too. `record`:
    added to its stream in the same step. Raises StaleTokenError (another claim holds it), DamagedError.
    """
    return bool(settle_one(q, to_complete(q, job, token, result=result, release=release, record=record)))


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed: its error, how long the job waits (ms), and which attempt is the last."""

    error: bytes | str
    delay_ms: int
    max_attempts: int


def to_retry(
    q: Queue,
    job: str,
    token: int,
    failure: Failure,
    *,
    release: bool = False,
    record: CompletionRecord | None = None,
) -> Settlement:
    """As `retry`, not sent yet."""
    k = q.keys
    keys, args = _tail(q, job, token, record)
    call = (
        k.base,
        job_id(job),
        not_negative(token, "token"),
        not_negative(failure.delay_ms, "delay_ms"),
        positive(failure.max_attempts, "max_attempts"),
        blob(failure.error, "error"),
        _released(release),
        *args,
    )
    return Settlement("retry", [k.active, k.row(job), k.schedule, k.dead, k.failed, *keys], call)


def retry(
    q: Queue,
    job: str,
    token: int,
    failure: Failure,
    *,
    release: bool = False,
    record: CompletionRecord | None = None,
) -> Retried:
    """Puts a failed job on the schedule, from the server's now, or into the dead set at its last attempt.

    `release`, `record`: as for `complete`; only a job that dies is recorded, and its flow parent, if it has one, hears
    of it according to its policy. Raises StaleTokenError (another claim holds it, or it is gone), DamagedError.
    """
    went: Retried = settle_one(q, to_retry(q, job, token, failure, release=release, record=record))
    return went


def delay_in(q: Queue, job: str, token: int, delay_ms: int, *, release: bool = False) -> None:
    """Puts a job in hand back on the schedule, `delay_ms` from the server's now, without an attempt: payload, attempts
    and error stay, and its lane has its place back. One that is scheduled already moves. `release`: as for `complete`.

    Raises StaleTokenError (another claim holds it, or it is gone), StateError (it waits or is dead), KindError.
    """
    settle_one(q, to_delay(q, job, token, delay_ms, release=release))


def delay_at(q: Queue, job: str, token: int, run_at_ms: int) -> None:
    """As delay_in, until an instant (unix ms); one that is past is due at once."""
    settle_one(q, _delayed(q, job, token, ("", instant(run_at_ms, "run_at_ms"), "")))


def to_delay(q: Queue, job: str, token: int, delay_ms: int, *, release: bool = False) -> Settlement:
    """As `delay_in`, not sent yet."""
    return _delayed(q, job, token, (not_negative(delay_ms, "delay_ms"), "", _released(release)))


def _delayed(q: Queue, job: str, token: int, tail: tuple[Arg, Arg, str]) -> Settlement:
    k = q.keys
    args = (k.base, job_id(job), not_negative(token, "token"), *tail)
    return Settlement("delay", [k.active, k.row(job), k.schedule], args)


def settle_one(q: Queue, one: Settlement) -> Any:
    """Sends one, and returns what the call returns."""
    return _READ[one.script](q.run(one.script, one.keys, *one.args))


_READ: dict[str, Callable[[Any], Any]] = {
    "complete": bool,
    "retry": lambda reply: Retried(reply.decode("ascii")),
    "delay": bool,
}
