"""Flows: parents that wait for their children, in the same queue and in others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from emq_ops.protocol.errors import BadInputError, DamagedError, EmqError, KindError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue, blob, positive
from emq_ops.protocol.server import Arg

MAX_LEVELS = 8
ADDED_KEPT_MS = 7 * 86_400_000
"""For so long after it was cut off, adding a flow again goes on where it ended."""


class ParentPolicy(Enum):
    """What a child's death is to its parent, and its word on the wire: the parent's death, or one child fewer."""

    FAIL = "fp"
    IGNORE = "id"


@dataclass(frozen=True, slots=True)
class FlowJob:
    """A job of a flow. `queue`: None is its parent's; `policy`: what its death is to its parent."""

    job: str
    payload: bytes | str
    queue: str | None = None
    policy: ParentPolicy = ParentPolicy.FAIL
    children: Sequence[FlowJob] = field(default=())


@dataclass(frozen=True, slots=True)
class _Placed:
    """A job where it goes: its queue, level (0 is the root), parent and the parent's queue."""

    flow: FlowJob
    queue: str
    level: int
    parent: str = ""
    parent_queue: str = ""

    @property
    def args(self) -> list[Arg]:
        elsewhere = self.parent_queue if self.parent_queue != self.queue else ""
        policy = self.flow.policy.value if self.parent else ""
        return [
            *(job_id(self.flow.job), blob(self.flow.payload, "payload"), len(self.flow.children)),
            *(self.parent, elsewhere, policy),
        ]


def add(q: Queue, root: FlowJob) -> bool:
    """Adds a flow. False: the root's row is there, and nothing changed.

    Where all of it is in one queue it is one step. Over several queues parents land before their children, and a flow
    that was cut off is finished by adding it again: what was added is remembered beside it for ADDED_KEPT_MS, so that a
    child that runs, or has run, is not added twice.

    Raises BadInputError (malformed ids, more than MAX_LEVELS levels, an id twice, no children) and KindError before
    anything is written, StateError (another job has one of the ids).
    """
    placed = list(_place(root, q.name))
    _check(placed)
    queues = {one.queue for one in placed}
    if len(queues) == 1:
        return _add(q, root, "whole", placed) == 1
    own = [one for one in placed if one.level == 0]
    if _add(q, root, "first", own) == 0:
        return False
    for level in range(1, max(one.level for one in placed) + 1):
        for name in sorted(queues):
            some = [one for one in placed if one.level == level and one.queue == name]
            if some:
                _add(Queue(q.server, name), root, "more", some)
    q.server.write("HDEL", q.keys.adding, root.job)
    for name in sorted(queues):
        q.server.write("UNLINK", Queue(q.server, name).keys.added(root.job))
    return True


def add_many(q: Queue, roots: Sequence[FlowJob]) -> list[bool | EmqError]:
    """As add, for each of them: added, was there, or its refusal; those that are all in one queue go in one flush. A
    malformed id is raised before anything is sent."""
    for root in roots:
        for one in _place(root, q.name):
            _well_formed(one.flow.job)
    told: list[bool | EmqError] = [False] * len(roots)
    whole: list[tuple[int, tuple[list[str], list[Arg]]]] = []
    for number, root in enumerate(roots):
        placed = list(_place(root, q.name))
        try:
            _check(placed)
            if len({one.queue for one in placed}) > 1:
                told[number] = add(q, root)
            else:
                whole.append((number, _call(q, root, "whole", placed)))
        except EmqError as refusal:
            told[number] = refusal
    replies = q.run_many("flow_add", [call for _, call in whole])
    for (number, _), reply in zip(whole, replies, strict=True):
        told[number] = reply if isinstance(reply, EmqError) else int(reply) == 1
    return told


def _well_formed(job: str) -> None:
    try:
        job_id(job)
    except KindError:
        return


def _place(one: FlowJob, queue: str, level: int = 0, parent: str = "", parent_queue: str = "") -> Iterator[_Placed]:
    here = queue_name(one.queue) if one.queue is not None else queue
    yield _Placed(one, here, level, parent, parent_queue)
    if level < MAX_LEVELS:
        for child in one.children:
            yield from _place(child, here, level + 1, one.job, here)


def _check(placed: Sequence[_Placed]) -> None:
    jobs = [job_id(one.flow.job) for one in placed]
    if not placed[0].flow.children:
        raise BadInputError(f"flow {jobs[0]} has no children: it would wait for ever", fix="enqueue it as a plain job")
    if placed[0].level == 0 and max(one.level for one in placed) >= MAX_LEVELS:
        raise BadInputError(f"flow {jobs[0]} has more than {MAX_LEVELS} levels", fix="make it flatter")
    twice = next((job for job in jobs if jobs.count(job) > 1), None)
    if twice is not None:
        raise BadInputError(f"job {twice} stands twice in the flow", fix="an id of its own for each")


def _add(q: Queue, root: FlowJob, way: str, placed: Sequence[_Placed]) -> int:
    keys, args = _call(q, root, way, placed)
    return int(q.run("flow_add", keys, *args))


def _call(q: Queue, root: FlowJob, way: str, placed: Sequence[_Placed]) -> tuple[list[str], list[Arg]]:
    keys = [q.keys.pending, q.keys.adding, q.keys.added(root.job)]
    args = [arg for one in placed for arg in one.args]
    return keys, [q.keys.base, root.job, way, ADDED_KEPT_MS, *args]


def tell(q: Queue, job: str) -> bool:
    """Tells the parent of a dead flow child that it died, by its policy: for deaths by somebody who tells nobody. A
    parent that heard before has heard once. False: the job is not dead, or no child."""
    return bool(q.run("flow_tell", [q.keys.row(job), q.keys.dead], q.keys.base, job_id(job)))


@dataclass(slots=True)
class Delivery:
    """`seen`: entries that were looked at; `delivered`: those that parents heard of; `aside`: those that can't be
    delivered, with the reason."""

    seen: int = 0
    delivered: int = 0
    aside: list[tuple[bytes, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Signal:
    """An entry of an outbox: what became of `child`, for `parent` in `queue`. `policy`: "" it completed."""

    queue: str
    parent: str
    child: str
    policy: str
    text: bytes


def parse_signal(entry: bytes) -> Signal:
    """Raises BadInputError, KindError for what is no entry."""
    if entry.startswith(b"\0"):
        parts = entry.split(b"\0", 6)
        if len(parts) != 7 or parts[1] != b"fail":
            raise BadInputError("no entry of a child that died")
        _, _, queue, parent, child, policy, text = parts
        word = "id" if policy == b"id" else "fp"
    else:
        parts = entry.split(b"\0", 3)
        if len(parts) != 4:
            raise BadInputError("no entry of a child that completed")
        queue, parent, child, text = parts
        word = ""
    names = [part.decode("utf-8", "surrogateescape") for part in (parent, child)]
    return Signal(queue_name(queue), job_id(names[0]), job_id(names[1]), word, text)


def deliver(q: Queue, batch: int = 100) -> Delivery:
    """Tells parents in other queues what became of children of this one, as the outbox has it.

    Up to `batch` entries, each taken off, by value, once its parent has heard. What can't be read, or has a parent that
    can't hear, is set aside in ``emq-ops:{q}:outbox-aside``. Several at once, and one that is killed anywhere, lose
    nothing and tell nothing twice.
    """
    found = Delivery()
    for entry in q.server.read("LRANGE", q.keys.outbox, 0, positive(batch, "batch") - 1):
        reason = ""
        found.seen += 1
        try:
            told = parse_signal(entry)
            parent = Queue(q.server, told.queue)
            args = (parent.keys.base, told.parent, told.child, told.policy, told.text)
            parent.run("flow_hear", [parent.keys.row(told.parent)], *args)
        except (BadInputError, KindError, DamagedError) as refusal:
            reason = refusal.what
            found.aside.append((entry, reason))
        taken = int(q.run("outbox_settle", [q.keys.outbox, q.keys.outbox_aside], entry, reason))
        found.delivered += taken if not reason else 0
    return found


def children_values(q: Queue, job: str) -> dict[str, bytes]:
    """What the children of a parent returned, by child."""
    return _book(q, job, "processed")


def ignored_failures(q: Queue, job: str) -> dict[str, bytes]:
    """The errors of the children whose death the parent ignores, by child."""
    return _book(q, job, "unsuccessful")


def _book(q: Queue, job: str, book: str) -> dict[str, bytes]:
    flat = q.server.read("HGETALL", q.keys.book(job, book))
    return {child.decode("utf-8", "replace"): text for child, text in zip(flat[::2], flat[1::2], strict=True)}


def dependencies(q: Queue, job: str) -> int:
    """How many children a parent waits for; 0 where it has none."""
    found = q.server.read("GET", q.keys.book(job, "dependencies"))
    if found is not None and not found.lstrip(b"-").isdigit():
        raise DamagedError(f"EMQDATA {q.keys.book(job, 'dependencies')} is no whole number", where=q.name)
    return int(found or 0)
