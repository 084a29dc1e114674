"""What a recorded vector says of its keyspace, for deciding whether a difference is one on purpose."""

from __future__ import annotations

from typing import Any

from emq_ops.protocol.conformance.values import offset
from emq_ops.protocol.keyspace import keys_of

BOOKS = ("dependencies", "processed", "failed", "unsuccessful")
PLAUSIBLE_MS = range(1_577_836_800_000, 4_102_444_800_001)


class VectorFacts:
    """What stood on the server before a call. `queue`: the vector's; texts are as recorded."""

    def __init__(self, queue: str, given: dict[str, Any], args: dict[str, Any]) -> None:
        self.queue, self.given, self.args = queue, given, args
        self.keys = keys_of(queue)

    def zset(self, name: str) -> dict[str, Any]:
        """The members of a set of the queue (``active``, ``g:GRP...:pending`` ...) with their scores."""
        found: dict[str, Any] = self.given.get(self.keys.base + name, {}).get("zset", {})
        return found

    def hash(self, name: str) -> dict[str, Any]:
        """A hash of the queue by the name after its base."""
        found = self.given.get(self.keys.base + name, {}).get("hash", {})
        return dict(found)

    def row(self, job: str) -> dict[str, Any]:
        """A job's row; empty where there is none."""
        return self.hash(f"job:{job}")

    def has(self, name: str) -> bool:
        """Whether the queue has a key of that name after its base."""
        return self.keys.base + name in self.given

    @property
    def job(self) -> str:
        """The job that the call names."""
        return str(self.args.get("id", ""))

    @property
    def waiting(self) -> list[str]:
        """The members of pending and of every lane."""
        sets = [name for name in self.given if name == self.keys.pending or name.endswith(":pending")]
        return [member for name in sets for member in self.given[name].get("zset", {})]

    @property
    def parent(self) -> tuple[str, dict[str, Any]] | None:
        """The flow parent of the job that is named, and its row, where it is of the same queue."""
        row = self.row(self.job)
        if "parent" not in row or row.get("parent_queue", self.queue) != self.queue:
            return None
        return str(row["parent"]), self.row(str(row["parent"]))

    @property
    def scores(self) -> list[Any]:
        """The scores of active and schedule that are no offsets from now."""
        found = [*self.zset("active").values(), *self.zset("schedule").values()]
        return [score for score in found if offset(score) is None]


def jobs_of(args: dict[str, Any]) -> list[str]:
    """Every id that the flows of a call name, as often as it stands there."""
    flows = args.get("flows", [args])
    return [job for flow in flows for job in _tree({**flow["parent"], "children": flow["children"]})]


def _tree(node: dict[str, Any]) -> list[str]:
    return [str(node["id"]), *(job for child in node.get("children", ()) for job in _tree(child))]


def outbox_parents(facts: VectorFacts) -> list[tuple[str, dict[str, Any]] | None]:
    """Of each entry of the outbox the parent and its row; None for one that can't be read."""
    found: list[tuple[str, dict[str, Any]] | None] = []
    for entry in facts.given.get(facts.keys.base + "flow:outbox", {}).get("list", []):
        parts = str(entry).split("\0")
        place = 2 if parts[:2] == ["", "fail"] else 0
        if len(parts) < (7 if place else 4) or not parts[place] or len(parts[place + 1]) != 14:
            found.append(None)
            continue
        there = VectorFacts(parts[place], facts.given, facts.args)
        found.append((parts[place + 1], there.row(parts[place + 1])))
    return found
