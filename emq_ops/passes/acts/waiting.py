"""Which waiting jobs are meant: by place, lane, time of minting, id, and a condition on what is in them.

The condition is of the language of ``when``: ``payload.tenant == 42 and job.attempts > 1``. A payload that is JSON is
seen as what it says, any other as text. A job for which the condition can't be decided (a field that its payload does
not have, a number compared with a text) is not taken, and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from emq_ops.passes.acts.targets import Targets
from emq_ops.protocol.errors import BadInputError, EmqError, UnreachableError
from emq_ops.protocol.ids import group_id, is_valid, job_id, max_id, min_id, parse
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import every_lane, lanes
from emq_ops.syntax.errors import SourceError

if TYPE_CHECKING:
    from emq_ops.syntax.expressions import Condition

WAITING, SCHEDULED = "waiting", "scheduled"
STATES = (WAITING, SCHEDULED)
PAGE = 1000
_WITH_PAYLOAD = 200
"""Jobs a flush where payloads travel along."""
_FIELDS = ("attempts", "stalled", "group", "lock", "state")
_END = 1 << 62
_NAMED = 1000
NAMES = ("job", "payload")
"""What a condition may read."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits. `state`: of STATES; `lane`: its group; `due_ms`: of a scheduled one; `payload`: None where
    nobody asked for it; `damaged`: its row can't be read."""

    job: str
    state: str
    attempts: int = 0
    stalls: int = 0
    lane: str | None = None
    due_ms: int | None = None
    held: bool = False
    payload: bytes | None = None
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class WaitingSelection:
    """`states`: of STATES; `lanes`: GRP ids (then no flat ones); `jobs`: ids; `after_ms`, `before_ms`: minted at that
    instant or later, and before it (unix ms); `where`: a condition. Empty or None: any. Raises BadInputError for what
    can't be one."""

    states: tuple[str, ...] = (WAITING,)
    lanes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    after_ms: int | None = None
    before_ms: int | None = None
    where: Condition | None = None

    def __post_init__(self) -> None:
        for state in self.states:
            if state not in STATES:
                raise BadInputError(f"no state '{state}' of a waiting job", fix=f"one of {', '.join(STATES)}")
        for job in self.jobs:
            job_id(job)
        for lane in self.lanes:
            group_id(lane)

    @property
    def needs_payload(self) -> bool:
        """Whether the condition reads it."""
        compiled = None if self.where is None else self.where.compiled
        return compiled is not None and "payload" in compiled.names

    @property
    def narrows(self) -> bool:
        """Whether any criterion is given."""
        return replace(self, states=(WAITING,)) != WaitingSelection()

    def takes(self, queue: str, one: WaitingJob) -> bool:
        """Whether the job fits. Raises SourceError where the condition can't be decided."""
        if self.jobs and one.job not in self.jobs:
            return False
        if self.lanes and one.lane not in self.lanes:
            return False
        minted = parse(one.job).unix_ms
        if (self.after_ms is not None and minted < self.after_ms) or (
            self.before_ms is not None and minted >= self.before_ms
        ):
            return False
        return self.where is None or self.where.holds(_names(queue, one))

    def as_row(self) -> dict[str, object]:
        """What was given, as plain values."""
        values: dict[str, object] = {name: getattr(self, name) for name in ("states", "lanes", "after_ms", "before_ms")}
        values |= {"jobs": self.jobs[:_NAMED], "where": "" if self.where is None else self.where.source}
        return {name: value for name, value in values.items() if value not in ((), None, "")}


@dataclass(slots=True)
class WaitingSet:
    """What a selection takes of one queue; iterated once, afterwards the counts are whole. `undecided`: jobs of which
    the condition could not be decided; `why`: of the first; `damaged`: jobs without a readable row."""

    server: Server
    queue: str
    selection: WaitingSelection
    seen: int = 0
    undecided: int = 0
    why: str = ""
    damaged: int = 0

    def __iter__(self) -> Iterator[WaitingJob]:
        for page in self._pages():
            for one in page:
                self.seen += 1
                if one.damaged:
                    self.damaged += 1
                    continue
                try:
                    if self.selection.takes(self.queue, one):
                        yield one
                except SourceError as fault:
                    self.undecided += 1
                    self.why = self.why or f"{one.job}: {fault.what}"

    def targets(self, keep: Callable[[WaitingJob], bool] = lambda _one: True) -> Targets:
        """All that are taken, as an act takes them."""
        targets = Targets(self.queue)
        for one in self:
            if keep(one):
                add_to(targets, one)
        targets.damaged += self.damaged
        return targets

    def _pages(self) -> Iterator[list[WaitingJob]]:
        size = _WITH_PAYLOAD if self.selection.needs_payload else PAGE
        page: list[tuple[str, str, int | None]] = []
        for member in self._members():
            page.append(member)
            if len(page) == size:
                yield self._read(page)
                page = []
        if page:
            yield self._read(page)

    def _members(self) -> Iterator[tuple[str, str, int | None]]:
        """Id, state and due instant of every member that is a job id."""
        q, selection = Queue(self.server, self.queue), self.selection
        if WAITING in selection.states:
            # Whoever names jobs misses none for it; whoever takes all must not pass over a lane that no book names.
            groups = list(selection.lanes) or [one.group for one in (lanes(q) if selection.jobs else every_lane(q))]
            keys = [] if selection.lanes else [q.keys.pending]
            for key in [*keys, *(q.keys.lane(group) for group in groups if is_valid(group) and group[:3] == "GRP")]:
                for member in self._by_id(key):
                    yield member, WAITING, None
        if SCHEDULED in selection.states:
            seen: set[str] = set()
            cursor = b"0"
            while True:
                cursor, flat = self.server.read("ZSCAN", q.keys.schedule, cursor, "COUNT", PAGE)
                for member, score in zip(flat[::2], flat[1::2], strict=True):
                    job = member.decode("utf-8", "backslashreplace")
                    if job not in seen and job[:3] == "JOB" and is_valid(job):
                        seen.add(job)
                        yield job, SCHEDULED, score_ms(score)
                if cursor == b"0":
                    return

    def _by_id(self, key: str) -> Iterator[str]:
        after, before = self.selection.after_ms, self.selection.before_ms
        low = "[" + min_id("JOB", after) if after is not None else "-"
        high = "[" + max_id("JOB", before if before is not None else _END)
        while True:
            found = self.server.read("ZRANGEBYLEX", key, low, high, "LIMIT", 0, PAGE)
            for raw in found:
                job = raw.decode("utf-8", "backslashreplace")
                if job[:3] == "JOB" and is_valid(job):
                    yield job
            if len(found) < PAGE:
                return
            low = b"(" + found[-1]

    def _read(self, members: list[tuple[str, str, int | None]]) -> list[WaitingJob]:
        keys = Queue(self.server, self.queue).keys
        fields = (*_FIELDS, "payload") if self.selection.needs_payload else _FIELDS
        replies = self.server.read_each([("HMGET", keys.row(job), *fields) for job, _, _ in members])
        return [_job(*member, reply) for member, reply in zip(members, replies, strict=True)]


def add_to(targets: Targets, one: WaitingJob) -> None:
    """One more job to act on."""
    targets.jobs.append((one.job, one.attempts, one.stalls))
    targets.causes[one.state] += 1
    if one.held:
        targets.blocked[one.job] = "held"


def _job(job: str, state: str, due_ms: int | None, reply: Any) -> WaitingJob:
    if isinstance(reply, EmqError):
        if isinstance(reply, UnreachableError):
            raise reply
        return WaitingJob(job, state, due_ms=due_ms, damaged=True)
    attempts, stalled, group, lock, _state, *payload = reply
    if attempts is None or not attempts.isdigit() or len(attempts) > 15:
        return WaitingJob(job, state, due_ms=due_ms, damaged=True)
    stalls = int(stalled) if stalled is not None and stalled.isdigit() and len(stalled) <= 15 else 0
    lane = group.decode("utf-8", "backslashreplace") if group else None
    held = lock is not None
    return WaitingJob(job, state, int(attempts), stalls, lane, due_ms, held, payload[0] if payload else None)


def _names(queue: str, one: WaitingJob) -> dict[str, Any]:
    facts = {
        "id": one.job,
        "queue": queue,
        "state": one.state,
        "lane": one.lane,
        "attempts": one.attempts,
        "stalls": one.stalls,
        "minted_ms": parse(one.job).unix_ms,
        "due_ms": one.due_ms,
    }
    return {"job": facts, "payload": readable(one.payload or b"")}


def readable(payload: bytes) -> Any:
    """A payload as a condition sees it: what its JSON says, else its text."""
    try:
        return json.loads(payload)
    except ValueError:
        return payload.decode("utf-8", "backslashreplace")
