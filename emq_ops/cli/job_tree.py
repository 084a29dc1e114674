"""The flow of a job, drawn as a tree; and what one may do with a job, as the commands that do it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from emq_ops.cli.output import counted
from emq_ops.overview.flows import FlowNode, FlowTree
from emq_ops.passes.acts.errortext import text_of
from emq_ops.protocol.errors import one_line

LEVELS = 8
CHILDREN = 20
"""So many children of a job are drawn."""
_DETAIL = 60


def draw(tree: FlowTree) -> list[str]:
    """The tree, a line a job, with the one that was asked for marked."""
    lines = list(_lines(tree, tree.root, "", "", 0))
    if not tree.whole:
        lines.append("(not the whole flow: there are more jobs, or more keys, than were looked at)")
    return [one_line(line) for line in lines]


def _lines(tree: FlowTree, node: FlowNode, head: str, below: str, level: int) -> Iterator[str]:
    yield head + _told(node) + ("   <- this one" if node.job == tree.job else "")
    children = node.children
    if level >= LEVELS - 1 and children:
        yield f"{below}`- {counted(len(children), 'job')} below"
        return
    for at, child in enumerate(children[:CHILDREN]):
        last = at == len(children) - 1
        yield from _lines(
            tree, child, f"{below}{'`' if last else '|'}- ", below + ("   " if last else "|  "), level + 1
        )
    if len(children) > CHILDREN:
        yield f"{below}`- {len(children) - CHILDREN} more"


def _told(node: FlowNode) -> str:
    words = [f"{node.queue} {node.job} {node.ended or node.state}"]
    if node.ended and node.state != "gone":
        words[0] += f" ({node.state})"
    if node.detail:
        words.append(text_of(node.detail, _DETAIL))
    if node.waits:
        words.append(f"waits for {node.waits}")
    if node.policy == "ignore" and not node.ended:
        words.append("its death is ignored")
    return ", ".join(words)


def may(place: dict[str, Any], job: str, kept_in: str = "QUEUE") -> list[str]:
    """The commands that do something with a job where it is; `kept_in`: the queue of one that is gone."""
    state, queue = place["state"], shlex.quote(str(place.get("queue", "")))
    at = f"--queue {queue}"
    if state == "gone":
        return [f"emq-ops rehydrate {kept_in} {job}"]
    if place.get("lock_ms") is not None:
        return [
            f"emq-ops job cancel {job} {at}",
            "(a worker's lock stands on it: what removes or requeues it is refused)",
        ]
    edit = f"emq-ops job edit {job} {at} --payload FILE"
    if state == "dead":
        again = f"emq-ops job requeue {job} {at} --reset-attempts"
        return [again, edit, f"emq-ops dead remove {queue} --job {job}"]
    if state in ("pending", "scheduled"):
        return [edit, f"emq-ops job remove {job} {at}", f"emq-ops job cancel {job} {at}"]
    if state == "active":
        if (place.get("deadline_ms") or 0) < place.get("now_ms", 0):
            return [f"emq-ops sweep {queue}", "(its lease has lapsed)"]
        return [f"emq-ops job cancel {job} {at}", f"emq-ops job extend {job} {at} --for 5m"]
    if state == "awaiting_children":
        return [f"(it waits for its children) emq-ops doctor {queue}"]
    return [f"emq-ops doctor {queue}"]
