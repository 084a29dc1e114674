"""The dead jobs of a queue as they stand, page by page, each with what the ledger knows of its death."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.database.statements import pages
from emq_ops.ledger.deaths import NO_ATTEMPTS, KnownDeath, cause_of, known_deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.errortext import READ, group_of, normalise
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

PAGE = 1000
_BUDGET = 8 * 1024 * 1024
"""Bytes of errors and payloads that one look touches: a millisecond or two of the server's time."""


@dataclass(slots=True)
class DeadJob:
    """A job in the dead set.

    `attempts` is -1 and `damaged` True where there is no row that says them. `error` is cut to `errortext.READ` bytes
    of `error_size` (None and -1: no error). `parent`: it is a flow child; `failed_children`: a flow parent; `held`: a
    worker's lock stands. `matched`: its payload has the text that was looked for. `known`: None where the ledger never
    saw this death.
    """

    queue: str
    job: str
    attempts: int = NO_ATTEMPTS
    stalls: int = 0
    group: str | None = None
    parent: bool = False
    error: bytes | None = None
    error_size: int = -1
    failed_children: bool = False
    held: bool = False
    matched: bool = False
    damaged: bool = False
    known: KnownDeath | None = None

    @property
    def cause(self) -> str:
        """stalled, error, flow or unknown."""
        if self.known is not None and self.known.killed_by is not None:
            return self.known.cause
        return cause_of(self.error, self.stalls, flow=self.failed_children)

    @property
    def error_text(self) -> str:
        """The normalised error."""
        return normalise(self.error)

    @property
    def error_group(self) -> str:
        """The short name of its group."""
        return group_of(self.cause, self.error_text)

    @property
    def first_seen_ms(self) -> int | None:
        """When it was first seen dead; None where nobody recorded that."""
        return self.known.first_seen_ms if self.known is not None else None


@dataclass(slots=True)
class DeadSet:
    """One queue's dead set, to be iterated once; afterwards the counts are whole. `malformed`: members that are no job
    ids; `left`: jobs that were dead no more when their page was read; `disorder`: the set holds scores other than 0
    (`doctor` mends them), so it was read by rank, and a job that moved may have been missed."""

    server: Server
    queue: str
    ledger: Ledger | None = None
    payload: bytes = b""
    seen: int = 0
    malformed: int = 0
    left: int = 0
    disorder: bool = False
    jobs: Sequence[str] | None = field(default=None)

    def __iter__(self) -> Iterator[DeadJob]:
        for page in self.pages():
            yield from page

    def pages(self) -> Iterator[list[DeadJob]]:
        """The jobs in pages of at most PAGE, by id. With `jobs` only these are looked at."""
        source = self._ids() if self.jobs is None else pages(list(self.jobs), PAGE)
        for ids in source:
            fit = [job for job in ids if job[:3] == "JOB" and is_valid(job)]
            self.malformed += len(ids) - len(fit)
            replies = self._look(fit)
            known = self._known(fit)
            found = [_dead_job(self.queue, job, r, known.get(job)) for job, r in zip(fit, replies, strict=True) if r[0]]
            self.left += len(fit) - len(found)
            self.seen += len(found)
            yield found

    def _ids(self) -> Iterator[list[str]]:
        key = keys_of(self.queue).dead
        low, high = self.server.read_many([("ZCOUNT", key, "-inf", "(0"), ("ZCOUNT", key, "(0", "+inf")])
        self.disorder = bool(low or high)
        after, rank = b"-", 0
        while True:
            if self.disorder:
                raw = self.server.read("ZRANGE", key, rank, rank + PAGE - 1)
            else:
                raw = self.server.read("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, PAGE)
            if raw:
                yield [member.decode("utf-8", "backslashreplace") for member in raw]
                rank += len(raw)
                after = b"(" + raw[-1]
            if len(raw) < PAGE:
                return

    def _known(self, jobs: Sequence[str]) -> dict[str, KnownDeath]:
        if self.ledger is None or not jobs:
            return {}
        with self.ledger.read() as connection:
            return known_deaths(connection, self.queue, jobs)

    def _look(self, ids: Sequence[str]) -> list[list[Any]]:
        keys = keys_of(self.queue)
        out: list[list[Any]] = []
        while len(out) < len(ids):
            args: list[Arg] = [keys.base, _BUDGET, READ, self.payload, *ids[len(out) :]]
            out += self.server.run(load("audit_look"), [keys.dead], args, readonly=True)
        return out


def _dead_job(queue: str, job: str, reply: Sequence[Any], found: KnownDeath | None) -> DeadJob:
    if reply[0] < 0:
        return DeadJob(queue, job, damaged=True)
    _, attempts, stalled, group, parent, error, size, failed, held, matched = reply
    fits = attempts.isdigit() and len(attempts) <= 18
    count = int(attempts) if fits else NO_ATTEMPTS
    stalls = int(stalled) if stalled.isdigit() and len(stalled) <= 18 else 0
    # One that has died again since the ledger saw it has a death of another time.
    known = found if found is not None and (found.attempts, found.stalls) == (count, stalls) else None
    return DeadJob(
        queue,
        job,
        attempts=count,
        stalls=stalls,
        group=group.decode("utf-8", "backslashreplace") or None,
        parent=parent == 1,
        error=error if size >= 0 else None,
        error_size=size,
        failed_children=failed == 1,
        held=held == 1,
        matched=matched == 1,
        damaged=not fits,
        known=known,
    )
