"""Flow parents that wait for ever: children that are gone, or dead, without a word to them; a count that is at its end.

A parent does not say who its children are; they say whose they are. So the rows of all queues are looked at, but only
where a parent's count is not explained by what was seen before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from emq_ops.audit.doctor.finding import FLOW, Finding
from emq_ops.protocol import key_names
from emq_ops.protocol.errors import BadInputError, KindError
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import EVERY_KEY, keys_of
from emq_ops.protocol.server import Arg, Server
from emq_ops.protocol.transitions.flows import parse_signal

MOST_SIGNALS = 10_000
"""So many entries of an outbox are looked at."""
_PAGE = 1000
_BOOKS = ("processed", "unsuccessful", "failed")
Flow = tuple[str, str]
"""A job of a flow: queue and id."""


@dataclass(slots=True)
class _Seen:
    """`waiting`: parents and how many children they wait for; `children`: of each parent, those that are there, and
    their state; `parents`: of each job, its parent."""

    waiting: dict[Flow, int] = field(default_factory=dict)
    children: dict[Flow, dict[Flow, bytes]] = field(default_factory=dict)
    parents: dict[Flow, Flow] = field(default_factory=dict)


def examine_flows(server: Server, rows: Mapping[str, Sequence[str]], settle: float) -> tuple[list[Finding], list[str]]:
    """What is wrong with the flows of which `rows` (queue -> ids) are, and notes. Changes nothing; a suspect is looked
    at twice. Raises what the server raises."""
    seen = _look(server, rows)
    if not seen.waiting:
        return [], []
    suspects = _judge(server, seen)
    if suspects and any(queue not in rows for queue in server.queues()):
        rows = _everywhere(server)
        suspects = _judge(server, _look(server, rows))
    if suspects and settle > 0:
        time.sleep(settle)
        again = {(found.key, found.place) for found in _judge(server, _look(server, rows))}
        suspects = [found for found in suspects if (found.key, found.place) in again]
    adding = _being_added(server, seen, suspects)
    notes = [f"{queue}: flow {root} was not added whole: add it again, or remove it" for queue, root in sorted(adding)]
    return [found for found in suspects if _root(seen, (found.queue, found.subject.decode())) not in adding], notes


def _look(server: Server, rows: Mapping[str, Sequence[str]]) -> _Seen:
    seen = _Seen()
    for queue, jobs in rows.items():
        keys = keys_of(queue)
        for page in (jobs[at : at + _PAGE] for at in range(0, len(jobs), _PAGE)):
            commands: list[Sequence[Arg]] = []
            for job in page:
                commands.append(("HMGET", keys.row(job), "state", "parent", "parent_queue"))
                commands.append(("GET", keys.book(job, "dependencies")))
            replies = server.read_each(commands)
            for job, row, count in zip(page, replies[::2], replies[1::2], strict=True):
                if isinstance(row, list):
                    _take(seen, (queue, job), row, count)
    return seen


def _take(seen: _Seen, flow: Flow, row: Sequence[bytes | None], count: object) -> None:
    state, parent, where = row
    if state == b"awaiting_children" and (count is None or (isinstance(count, bytes) and count.lstrip(b"-").isdigit())):
        seen.waiting[flow] = int(count or 0)
    if parent is not None and state is not None and is_valid(parent):
        home = flow[0] if where is None else where.decode("utf-8", "replace")
        of = (home, parent.decode("ascii"))
        seen.children.setdefault(of, {})[flow] = state
        seen.parents[flow] = of


def _judge(server: Server, seen: _Seen) -> list[Finding]:
    found = []
    signals: dict[Flow, set[str]] | None = None
    for parent, count in sorted(seen.waiting.items()):
        queue, job = parent
        if count <= 0:
            detail = f"waits for {count} children"
            found.append(Finding(queue, "unreleased_parent", job.encode(), detail, f"{FLOW}{count}"))
            continue
        children = seen.children.get(parent, {})
        dead = [child for child, state in children.items() if state == b"dead"]
        if not dead and len(children) >= count:
            continue
        if signals is None:
            signals = _signals(server, {*seen_queues(seen), *server.queues()})
        heard = _heard(server, parent)
        underway = signals.get(parent, set()) - heard
        for home, child in sorted(dead):
            if child not in heard and child not in underway:
                detail = f"is dead, and its parent {job} of {queue} has not heard of it"
                found.append(Finding(home, "untold_death", child.encode(), detail, f"{FLOW}{count}"))
        there = {child for _, child in children if child not in heard} | underway
        if len(there) < count:
            detail = f"waits for {count} children, of which {len(there)} are there"
            found.append(Finding(queue, "lost_children", job.encode(), detail, f"{FLOW}{count}"))
    return found


def seen_queues(seen: _Seen) -> set[str]:
    """The queues of the children that were seen."""
    return {queue for children in seen.children.values() for queue, _ in children}


def _heard(server: Server, parent: Flow) -> set[str]:
    keys = keys_of(parent[0])
    replies = server.read_each([("HKEYS", keys.book(parent[1], book)) for book in _BOOKS])
    return {child.decode("utf-8", "replace") for reply in replies if isinstance(reply, list) for child in reply}


def _signals(server: Server, queues: Iterable[str]) -> dict[Flow, set[str]]:
    """Of each parent, the children of which a signal waits in an outbox."""
    names = sorted(queues)
    found: dict[Flow, set[str]] = {}
    replies = server.read_each([("LRANGE", keys_of(name).outbox, 0, MOST_SIGNALS - 1) for name in names])
    for entry in (entry for reply in replies if isinstance(reply, list) for entry in reply):
        try:
            told = parse_signal(entry)
        except (BadInputError, KindError):
            continue
        found.setdefault((told.queue, told.parent), set()).add(told.child)
    return found


def _everywhere(server: Server) -> dict[str, list[str]]:
    """The rows of all queues that are of a flow."""
    found: dict[str, list[str]] = {}
    page: list[tuple[str, str]] = []

    def judge() -> None:
        rows = server.read_each([("HMGET", keys_of(q).row(job), "state", "parent") for q, job in page])
        for (queue, job), row in zip(page, rows, strict=True):
            if isinstance(row, list) and (row[1] is not None or row[0] == b"awaiting_children"):
                found.setdefault(queue, []).append(job)
        page.clear()

    for key in server.scan(EVERY_KEY):
        queue = key_names.queue_of_key(key)
        job = key_names.row_of_name(keys_of(queue).name_of(key)) if queue is not None else None
        if queue is not None and job is not None:
            page.append((queue, job.decode("ascii")))
            if len(page) >= _PAGE:
                judge()
    judge()
    return found


def _root(seen: _Seen, flow: Flow) -> Flow:
    for _ in range(16):
        if flow not in seen.parents:
            break
        flow = seen.parents[flow]
    return flow


def _being_added(server: Server, seen: _Seen, suspects: Sequence[Finding]) -> set[Flow]:
    """The roots of those flows that are being added, or whose adding was cut off."""
    roots = sorted({_root(seen, (found.queue, found.subject.decode())) for found in suspects})
    replies = server.read_each([("HEXISTS", keys_of(queue).adding, job) for queue, job in roots])
    return {root for root, there in zip(roots, replies, strict=True) if there == 1}
