"""The tree of a flow: parents, children, and how each stands.

A parent does not say who its children are. Those that have ended are in its books; the others are found by their rows,
within a bounded look at the keys of the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from emq_ops.protocol import key_names
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import EVERY_KEY, keys_of, queue_name
from emq_ops.protocol.server import Server

MOST_NODES = 200
MOST_KEYS = 50_000
"""Keys that are looked at for children."""
LEVELS = 16
_PAGE = 1000
_BOOKS = (("processed", "completed"), ("unsuccessful", "ignored"), ("failed", "failed"))
_Flow = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FlowNode:
    """One job of a flow. `state`: as its row says, ``gone`` without one; `policy`: what its death is to its parent
    (``fail``, ``ignore``; '' for the root); `ended`: what its parent heard of it: ``completed``, ``failed``,
    ``ignored``, '' nothing yet; `detail`: the result or error that it heard; `waits`: for how many children (None: it
    is no parent)."""

    queue: str
    job: str
    state: str
    policy: str = ""
    ended: str = ""
    detail: bytes | None = None
    waits: int | None = None
    children: tuple[FlowNode, ...] = ()

    def as_row(self) -> dict[str, Any]:
        """As JSON shows it."""
        out: dict[str, Any] = {"queue": self.queue, "job": self.job, "state": self.state}
        out |= {name: value for name in ("policy", "ended") if (value := getattr(self, name))}
        if self.detail is not None:
            out["detail"] = self.detail.decode("utf-8", "backslashreplace")
        if self.waits is not None:
            out["waits"] = self.waits
        return {**out, "children": [child.as_row() for child in self.children]}


@dataclass(frozen=True, slots=True)
class FlowTree:
    """The flow of `job`, from its root. `whole`: False where there are more jobs than were shown, or more keys on the
    server than were looked at."""

    job: str
    root: FlowNode
    whole: bool


@dataclass(slots=True)
class _Rows:
    """What rows say: children of each parent with their policy, states."""

    children: dict[_Flow, dict[_Flow, str]] = field(default_factory=dict)
    states: dict[_Flow, str] = field(default_factory=dict)
    whole: bool = True


def flow_of(server: Server, queue: str, job: str, *, most: int = MOST_NODES, keys: int = MOST_KEYS) -> FlowTree | None:
    """The tree that a job is in; None where it is of no flow. `most` jobs are shown, `keys` keys of the server looked
    at. Raises what the server raises."""
    k = keys_of(queue)
    state, parent = server.read("HMGET", k.row(job), "state", "parent")
    books = server.read("EXISTS", *(k.book(job, name) for name in ("dependencies", *(book for book, _ in _BOOKS))))
    if state is None or (parent is None and not books):
        return None
    found = _rows(server, keys)
    tree = _Tree(server, found, most)
    root = tree.node(_root(server, (queue, job)), "", "", None, LEVELS)
    return FlowTree(job, root, found.whole and tree.left > 0)


def _parent(home: str, parent: bytes | None, where: bytes | None) -> _Flow | None:
    if parent is None or not is_valid(parent):
        return None
    try:
        return home if where is None else queue_name(where), parent.decode("ascii")
    except BadInputError:
        return None


def _root(server: Server, flow: _Flow) -> _Flow:
    for _ in range(LEVELS):
        above = _parent(flow[0], *server.read("HMGET", keys_of(flow[0]).row(flow[1]), "parent", "parent_queue"))
        if above is None:
            break
        flow = above
    return flow


def _rows(server: Server, most: int) -> _Rows:
    found = _Rows()
    scan = server.scan(EVERY_KEY)
    keys = list(islice(scan, most))
    found.whole = next(scan, None) is None
    page: list[_Flow] = []
    for key in dict.fromkeys(keys):
        queue = key_names.queue_of_key(key)
        job = key_names.row_of_name(keys_of(queue).name_of(key)) if queue is not None else None
        if queue is not None and job is not None:
            page.append((queue, job.decode("ascii")))
    for at in range(0, len(page), _PAGE):
        _take(server, found, page[at : at + _PAGE])
    return found


def _take(server: Server, found: _Rows, page: Sequence[_Flow]) -> None:
    fields = ("state", "parent", "parent_queue", "parent_policy")
    replies = server.read_each([("HMGET", keys_of(queue).row(job), *fields) for queue, job in page])
    for flow, row in zip(page, replies, strict=True):
        above = _parent(flow[0], row[1], row[2]) if isinstance(row, list) else None
        if above is not None:
            found.children.setdefault(above, {})[flow] = "ignore" if row[3] == b"id" else "fail"


class _Tree:
    def __init__(self, server: Server, rows: _Rows, most: int) -> None:
        self._server, self._rows = server, rows
        self.left = most

    def node(self, flow: _Flow, policy: str, ended: str, detail: bytes | None, levels: int) -> FlowNode:
        """The tree below one job, as far as there is room."""
        queue, job = flow
        self.left -= 1
        k = keys_of(queue)
        state, waits = self._server.read_many([("HGET", k.row(job), "state"), ("GET", k.book(job, "dependencies"))])
        count = int(waits) if waits is not None and waits.lstrip(b"-").isdigit() else None
        heard = self._heard(flow)
        children = dict(self._rows.children.get(flow, {})) if levels > 0 else {}
        there = {child for _, child in children}
        # What is gone stands in the books by its id alone: its queue is not known, and shown as the parent's.
        gone = {(queue, child): "" for child in heard if child not in there}
        below = []
        for child, rule in sorted({**children, **gone}.items(), key=lambda one: one[0][1]):
            if self.left <= 0:
                break
            how, text = heard.get(child[1], ("", None))
            if child in gone:
                self.left -= 1
                below.append(FlowNode(*child, "gone", "", how, text))
            else:
                below.append(self.node(child, rule, how, text, levels - 1))
        said = "gone" if state is None else state.decode("utf-8", "replace")
        return FlowNode(queue, job, said, policy, ended, detail, count, tuple(below))

    def _heard(self, flow: _Flow) -> dict[str, tuple[str, bytes]]:
        found: dict[str, tuple[str, bytes]] = {}
        for book, word in _BOOKS:
            _, flat = self._server.read("HSCAN", keys_of(flow[0]).book(flow[1], book), 0, "COUNT", MOST_NODES)
            for child, text in zip(flat[::2], flat[1::2], strict=True):
                found.setdefault(child.decode("utf-8", "replace"), (word, text))
        return found
