"""Which dead jobs are meant: one filter for audits, their acts, and playbooks.

Every criterion that is given must fit; within one, any. A selection that takes nothing is an error, never "all".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.deadset import DeadJob, DeadSet
from emq_ops.passes.acts.errortext import normalise
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.server import Server

_SHOWN = 200
CAUSES = ("stalled", "error", "flow", "unknown")


class EmptySelectionError(BadInputError):
    """Nothing fits the filters."""


@dataclass(frozen=True, slots=True)
class DeadSelection:
    """`causes`: of CAUSES. `errors`: an error group's short name, a text (numbers and ids in it don't matter), or a
    pattern with ``*``. `older_ms`, `newer_ms`: how long ago it was first seen dead, at least and at most; a death that
    nobody recorded is first seen now. `jobs`: ids. `payload`: bytes that the payload contains. `interruption`,
    `killed_by`: of the ledger's record (an interruption's number, a run's id). Empty or None: any.

    Raises BadInputError for what can't be one.
    """

    causes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    older_ms: int | None = None
    newer_ms: int | None = None
    jobs: tuple[str, ...] = ()
    payload: bytes = b""
    interruption: int | None = None
    killed_by: str | None = None
    _texts: frozenset[str] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        for cause in self.causes:
            if cause not in CAUSES:
                raise BadInputError(f"no cause '{cause}'", fix=f"one of {', '.join(CAUSES)}")
        for job in self.jobs:
            job_id(job)
        for name in ("older_ms", "newer_ms"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise BadInputError(f"{name} is {value}", fix="an age of 0 ms or more")
        if not all(text.strip() for text in self.errors):
            raise BadInputError("an empty error text", fix="give a group's name, a text or a pattern with *")
        object.__setattr__(self, "_texts", frozenset(map(_normal, self.errors)))

    @property
    def narrows(self) -> bool:
        """Whether any criterion is given."""
        return self != DeadSelection()

    @property
    def needs_ledger(self) -> bool:
        """Whether a criterion asks for what only the ledger knows."""
        wanted = (self.older_ms, self.newer_ms, self.interruption, self.killed_by)
        return any(value is not None for value in wanted)

    def takes(self, job: DeadJob, now_ms: int) -> bool:
        """Whether the job fits. `now_ms`: the server's clock."""
        if self.causes and job.cause not in self.causes:
            return False
        if self.errors and not self._error_fits(job):
            return False
        if self.payload and not job.matched:
            return False
        if self.jobs and job.job not in self.jobs:
            return False
        age = 0 if job.first_seen_ms is None else now_ms - job.first_seen_ms
        if (self.older_ms is not None and age < self.older_ms) or (self.newer_ms is not None and age > self.newer_ms):
            return False
        if self.interruption is not None and (job.known is None or job.known.interruption != self.interruption):
            return False
        return self.killed_by is None or (job.known is not None and job.known.killed_by == self.killed_by)

    def _error_fits(self, job: DeadJob) -> bool:
        text = job.error_text
        if text in self._texts or job.error_group in self.errors:
            return True
        return any("*" in pattern and globs.matches(pattern, text) for pattern in self.errors)

    def as_row(self) -> dict[str, object]:
        """What was given, as plain values."""
        values = {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}
        out: dict[str, object] = {name: value for name, value in values.items() if value not in ((), None, b"")}
        if self.payload:
            out["payload"] = self.payload.decode("utf-8", "backslashreplace")
        return out


def select(
    server: Server, queue: str, selection: DeadSelection, ledger: Ledger | None = None, *, now_ms: int | None = None
) -> Iterator[DeadJob]:
    """The dead jobs of `queue` that fit, by id, read in bounded pages. Raises what the server and the ledger raise;
    an empty outcome is the caller's to refuse (`nothing`)."""
    at = server.now_ms(queue) if now_ms is None else now_ms
    dead = DeadSet(server, queue, ledger, selection.payload, jobs=sorted(set(selection.jobs)) or None)
    for job in dead:
        if selection.takes(job, at):
            yield job


def _normal(text: str) -> str:
    # Bytes of a command line that are no UTF-8 are looked for as bytes.
    return normalise(text.encode("utf-8", "surrogateescape"))


def _short(value: object) -> str:
    text = " or ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def nothing(queues: list[str], selection: DeadSelection, *also: str) -> EmptySelectionError:
    """The error for a selection that took nothing. `also`: what else was asked for, in words."""
    given = ", ".join([*(f"{name} {_short(value)}" for name, value in selection.as_row().items()), *also])
    fix = "see `emq-ops audit dead` without filters"
    if anchored := [text for text in selection.errors if not text.startswith("*")]:
        fix += f"; an error is compared whole, so a part of it wants stars: '*{_short(anchored[0].strip('*'))}*'"
    if selection.needs_ledger:
        fix += "; deaths that no pass recorded are first seen now, and have no interruption or killer"
    where = ", ".join(queues[:5]) + (" ..." if len(queues) > 5 else "")
    return EmptySelectionError(f"no dead job fits ({given})" if given else "there is no dead job", where=where, fix=fix)
