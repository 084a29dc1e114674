"""What stands on a server before anybody manages it: queues, depths, streams, and what trims them. Reads only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from emq_ops.overview.look import QueueLook, look_at_queues
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.key_names import queue_of_key, stream_of_key
from emq_ops.protocol.keyspace import EVERY_KEY, keys_of
from emq_ops.protocol.server import Server

MOST_KEYS = 200_000
"""So many keys are looked at; a server with more has more queues than are told, perhaps."""
MOST_SECONDS = 10.0
MOST_QUEUES = 1_000


@dataclass(frozen=True, slots=True)
class StreamFound:
    """A stream: its length, and how many records were ever added to it (None: the server does not tell)."""

    name: str
    length: int
    added: int | None

    @property
    def gone(self) -> int:
        """Records that somebody has trimmed or deleted."""
        return max(0, (self.added or 0) - self.length)


@dataclass(frozen=True, slots=True)
class QueueFound:
    """A queue with its streams."""

    look: QueueLook
    streams: tuple[StreamFound, ...]

    @property
    def dead_gone(self) -> int:
        """Deaths that were counted and whose jobs are dead no more: trimmed, removed or tried again."""
        return max(0, self.look.failed - self.look.dead)

    @property
    def words(self) -> str:
        """In one line: what waits, runs, is dead, and what trims today."""
        look = self.look
        told = [f"{look.waiting:,} waiting", f"{look.active:,} active", f"{look.scheduled:,} scheduled"]
        told.append(f"{look.dead:,} dead" + (f" of {look.failed:,} deaths" if self.dead_gone else ""))
        for stream in self.streams:
            trims = f" of {stream.added:,}: something trims it" if stream.gone else ""
            told.append(f"{stream.name}: {stream.length:,} records{trims}")
        return ", ".join(told)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What was found. `whole`: all keys were looked at; `unread`: queue -> why it could not be read."""

    queues: Mapping[str, QueueFound]
    unread: Mapping[str, str]
    keys: int
    whole: bool


def take_inventory(server: Server, *, most_keys: int = MOST_KEYS) -> Inventory:
    """Looks by SCAN at up to `most_keys` keys, for at most `MOST_SECONDS`. Raises UnreachableError."""
    streams: dict[str, set[str]] = {}
    keys, whole, until = 0, True, time.monotonic() + MOST_SECONDS
    for key in server.scan(EVERY_KEY):
        queue = queue_of_key(key)
        if queue is not None and (queue in streams or len(streams) < MOST_QUEUES):
            name = stream_of_key(key)
            streams.setdefault(queue, set()).update([name] if name is not None else [])
        keys += 1
        if keys >= most_keys or time.monotonic() > until or len(streams) >= MOST_QUEUES:
            whole = False
            break
    names = sorted(streams)
    found: dict[str, QueueFound] = {}
    unread: dict[str, str] = {}
    for name, look in zip(names, look_at_queues(server, names), strict=True):
        if isinstance(look, QueueLook):
            found[name] = QueueFound(look, _streams(server, name, sorted(streams[name])))
        else:
            unread[name] = str(look[1])
    return Inventory(found, unread, keys, whole)


def _streams(server: Server, queue: str, names: list[str]) -> tuple[StreamFound, ...]:
    replies = server.read_each([("XINFO", "STREAM", keys_of(queue).stream(name)) for name in names])
    found = []
    for name, reply in zip(names, replies, strict=True):
        if isinstance(reply, EmqError):
            continue  # it went meanwhile, or is no stream: `doctor` says so
        facts = dict(zip(reply[::2], reply[1::2], strict=True)) if isinstance(reply, list) else reply
        told = {key.decode() if isinstance(key, bytes) else key: value for key, value in facts.items()}
        found.append(StreamFound(name, int(told["length"]), told.get("entries-added")))
    return tuple(found)
