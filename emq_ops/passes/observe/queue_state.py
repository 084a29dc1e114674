"""A look at a queue and at the node that owns it, at one moment (``lua/look.lua``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import Keys, keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server


@dataclass(frozen=True, slots=True)
class QueueState:
    """What was seen. `now_ms`: the server's clock. `promoted`: this node became a primary in this life. `due`: lapsed
    leases; `active`, `dead`: members; `earliest_ms`: the deadline that lapses next, None where nothing is in flight.
    `unrecorded`: a slice of a sweep waits to be put into the ledger. `token`, `state`: of the lease, 0 and '' where
    nobody ever took it."""

    queue: str
    run_id: str
    replid: str
    promoted: bool
    uptime_s: int
    now_ms: int
    token: int
    state: str
    due: int
    active: int
    dead: int
    completed: int
    failed: int
    unrecorded: bool
    earliest_ms: int | None

    @property
    def born_ms(self) -> int:
        """When this life of the server began, at the latest: its start and its clock are told in whole seconds."""
        return min(self.now_ms, 1000 * (self.now_ms // 1000 - self.uptime_s + 1))


def keys_to_observe(k: Keys) -> list[str]:
    """The keys of ``lua/look.lua``."""
    return [k.lease, k.swept, k.active, k.dead, k.completed, k.failed]


def queue_state(queue: str, reply: list[Any]) -> QueueState:
    """The state from the reply of ``lua/look.lua``."""
    run_id, replid, promoted, uptime, now, token, state, due, active, dead, completed, failed, waiting, first = reply
    return QueueState(
        queue,
        run_id.decode("ascii"),
        replid.decode("ascii"),
        promoted == 1,
        int(uptime),
        int(now),
        int(token or 0),
        state.decode("utf-8", "replace"),
        int(due),
        int(active),
        int(dead),
        int(completed),
        int(failed),
        waiting == 1,
        score_ms(first) if first else None,
    )


def observe(server: Server, queue: str) -> QueueState:
    """One look, one request. Raises DamagedError where a key is of another type."""
    return queue_state(queue, server.run(load("look"), keys_to_observe(keys_of(queue)), readonly=True))


def same_life(before: QueueState, now: QueueState) -> bool:
    """Whether node and dead set are as they were."""
    return (before.run_id, before.replid, before.promoted, before.dead, before.failed) == (
        now.run_id,
        now.replid,
        now.promoted,
        now.dead,
        now.failed,
    )


def observe_many(server: Server, queues: Sequence[str]) -> dict[str, QueueState | EmqError]:
    """Many looks in one flush; in place of a look that failed stands its error."""
    replies = server.run_many(load("look"), [(keys_to_observe(keys_of(q)), ()) for q in queues], readonly=True)
    return {q: r if isinstance(r, EmqError) else queue_state(q, r) for q, r in zip(queues, replies, strict=True)}


def restored(server: Server, queue: str) -> bool:
    """Whether this life of the node began by loading a keyspace from its disk."""
    facts = server.info(queue, "persistence")
    if facts.get("rdb_last_load_keys_loaded", "0") not in ("0", ""):
        return True
    # The size of the AOF as it was at the start, unless it was rewritten since. Without a load it is 0.
    begun, rewritten = facts.get("aof_base_size", "0"), facts.get("aof_rewrites", "0")
    return facts.get("aof_enabled") == "1" and begun != "0" and rewritten == "0"
