"""An open server: commands and transitions in, raw replies out, every fault one of our errors.

Replies are plain RESP2 values: ``bytes``, ``int``, ``None`` or lists of them; nothing is decoded or turned into a
dict (a dict loses the repeated field names of a stream entry). `read` may be repeated after a lost reply, since that
is harmless; `write` and `run` never are: a lost reply is an OutcomeUnknownError. Whatever certainly did not execute
(no connection, READONLY, LOADING, MOVED, BUSY ...) is tried again for a bounded time.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from emq_ops.protocol import key_names, keyspace
from emq_ops.protocol.connection.calls import Call
from emq_ops.protocol.connection.cluster import Cluster
from emq_ops.protocol.connection.dispatch import CommandDispatcher
from emq_ops.protocol.connection.embedded import Embedded
from emq_ops.protocol.connection.gate import Gate
from emq_ops.protocol.connection.link import Arg
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.pinned import Pinned
from emq_ops.protocol.connection.replies import reply_error
from emq_ops.protocol.connection.sentinels import Sentinels
from emq_ops.protocol.connection.subscription import Subscription
from emq_ops.protocol.connection.tls import check_files
from emq_ops.protocol.connection.topology import Standalone, Topology
from emq_ops.protocol.connection.url import Target, parse
from emq_ops.protocol.errors import (
    EmqError,
    ReconnectedError,
    UnreachableError,
)
from emq_ops.protocol.scripts import Script
from emq_ops.protocol.slots import slot
from emq_ops.protocol.wire_fence import accept

__all__ = ["Arg", "ConnectionOptions", "Server", "ServerSession", "connect", "reply_error"]

SCANS = 4
"""How often all primaries are scanned at the most while slots move between them."""


class _Sender(Protocol):
    def send(self, calls: Sequence[Call], *, repeatable: bool, node: Node | None = None) -> list[Any]: ...

    def close(self) -> None: ...


class Server:
    """A connected server. Thread-safe: each call borrows a connection from a pool."""

    def __init__(
        self, sender: _Sender, topology: Topology, options: ConnectionOptions, where: str, gate: Gate | None = None
    ) -> None:
        self._sender = sender
        self._gate = gate
        self._topology = topology
        self.options = options
        self.where = where

    @property
    def ends_unused(self) -> bool:
        """Whether the server ends with its last user, so that a start is nothing out of the ordinary."""
        return isinstance(self._topology, Embedded)

    @property
    def single(self) -> bool:
        """Whether one node owns every slot, so that a script may name keys of several queues."""
        return self._topology.single

    def read(self, *command: Arg) -> Any:
        """The reply to a command that changes nothing; sent again where its reply was lost."""
        return self._one(Call.of(command), repeatable=True)

    def write(self, *command: Arg) -> Any:
        """The reply to a command that changes something; never sent twice. OutcomeUnknownError: look first."""
        return self._one(Call.of(command), repeatable=False)

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Arg] = (), *, readonly: bool = False) -> Any:
        """The reply of one transition, sent by its SHA and loaded where the server does not know it. Never sent twice,
        unless `readonly`."""
        return self._one(self._transition(script, keys, args, readonly), repeatable=readonly)

    def run_many(
        self, script: Script, calls: Sequence[tuple[Sequence[str], Sequence[Arg]]], *, readonly: bool = False
    ) -> list[Any]:
        """Many calls of one transition, a thousand a flush. Each place holds the reply, or the EmqError of that call.

        Calls may be of several queues; those of one queue run in their order, but for calls that had to be sent again
        (the script was not loaded yet, a node had moved).
        """
        return self._sender.send(
            [self._transition(script, keys, args, readonly) for keys, args in calls], repeatable=readonly
        )

    def run_each(self, calls: Sequence[tuple[Script, Sequence[str], Sequence[Arg]]]) -> list[Any]:
        """As `run_many`, of several transitions. None is sent twice."""
        return self._sender.send([self._transition(*call, False) for call in calls], repeatable=False)

    def _transition(self, script: Script, keys: Sequence[str], args: Sequence[Arg], readonly: bool) -> Call:
        return Call.transition(script, keys, args, readonly=readonly, in_cluster=not self._topology.single)

    def read_many(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """The replies of many harmless commands, a thousand a flush, in order. The first error is raised."""
        replies = self.read_each(commands)
        for reply in replies:
            if isinstance(reply, EmqError):
                raise reply
        return replies

    def read_each(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """As `read_many`, with each command's reply or EmqError in its place."""
        return self._sender.send([Call.of(tuple(command)) for command in commands], repeatable=True)

    def write_each(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """As `read_each`, of commands that change something. None is sent twice."""
        return self._sender.send([Call.of(tuple(command)) for command in commands], repeatable=False)

    def now_ms(self, queue: str) -> int:
        """The clock of the node that owns the queue's slot, unix ms."""
        seconds, micros = self.read_on(queue, "TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def read_on(self, queue: str, *command: Arg) -> Any:
        """As `read`, for a command without a key (TIME, INFO ...), on the node that owns the queue's slot."""
        return self._one(Call(command, (keyspace.keys_of(queue).base,)), repeatable=True)

    def write_on(self, queue: str, *command: Arg) -> Any:
        """As `write`, for a command without a key, on the node that owns the queue's slot."""
        return self._one(Call(command, (keyspace.keys_of(queue).base,)), repeatable=False)

    def info(self, queue: str, section: str) -> dict[str, str]:
        """A section of INFO from the node that owns the queue's slot, as text."""
        text = self.read_on(queue, "INFO", section).decode("utf-8", "replace")
        pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
        return dict(pairs)

    def run_id(self, queue: str) -> str:
        """The run id (one life of the server process) of the node that owns the queue's slot."""
        return self.info(queue, "server")["run_id"]

    def scan(self, match: str = "*", *, count: int = 1000) -> Iterator[bytes]:
        """The keys of every primary that match, by bounded SCAN; a key may come twice. A key that is there all the
        time comes for certain: where a connection ends on the way, that node's scan begins again, and where a slot
        moves meanwhile, all of them."""
        for _ in range(SCANS):
            before = self._topology.layout()
            for node in self._topology.primaries():
                yield from self._scan(node, match, count)
            if before is None or self._topology.layout() == before:
                return

    def queues(self) -> list[str]:
        """The queues that have keys, sorted."""
        # Names are checked once each, not once a key: there may be millions of keys.
        heads = {key[: key.find(b"}:") + 2] for key in self.scan(keyspace.EVERY_KEY)}
        found = {key_names.queue_of_key(head + b"*") for head in heads}
        return sorted(name for name in found if name is not None)

    @contextlib.contextmanager
    def session(self, queue: str) -> Iterator[ServerSession]:
        """One connection to the node that owns the queue's slot, for calls that must see one life of the server.

        In it everything is sent over that connection or not at all: where it ends, a call raises ReconnectedError
        (an OutcomeUnknownError for a write in flight), and so does every later one. It takes commands and transitions
        of this queue.
        """
        with self._pinned(self._owner(queue)) as session:
            yield session

    def subscribe(self, *channels: str) -> Subscription:
        """Listens to channels on a connection of its own; a context manager with ``get(timeout)``."""
        return Subscription(self._topology, channels, self.options.socket_seconds)

    def hurried(self, seconds: float) -> Server:
        """The same server, for calls that come again by themselves: nothing is tried twice, and no node is waited for
        longer than `seconds`. Closed with this one."""
        seconds = min(seconds, self.options.socket_seconds)
        options = dataclasses.replace(self.options, patience=0.0, socket_timeout=seconds)
        return Server(CommandDispatcher(self._topology, options, self._gate), self._topology, options, self.where)

    def shards(self, queues: Iterable[str]) -> list[list[str]]:
        """`queues` by the node that owns their slots, as far as that is known; all of them together where it is not."""
        names = list(queues)
        if self.single:
            return [names] if names else []
        try:
            nodes = [self._topology.node(_slot(queue)) for queue in names]
        except UnreachableError:
            return [names] if names else []
        found: dict[Node, list[str]] = {}
        for node, queue in zip(nodes, names, strict=True):
            found.setdefault(node, []).append(queue)
        return list(found.values())

    def close(self) -> None:
        """Gives back every connection; the last user of an embedded server stops it. Later calls are refused."""
        self._sender.close()
        self._topology.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _one(self, call: Call, *, repeatable: bool) -> Any:
        [reply] = self._sender.send([call], repeatable=repeatable)
        if isinstance(reply, EmqError):
            raise reply
        return reply

    def _owner(self, queue: str) -> Node:
        # Through the sender, which waits out a failover and looks at the version fence.
        self.read_on(queue, "PING")
        return self._topology.node(_slot(queue))

    @contextlib.contextmanager
    def _pinned(self, node: Node) -> Iterator[ServerSession]:
        link = node.take()
        pinned = Pinned(link, node, self.options, self._topology)
        try:
            yield ServerSession(pinned, self._topology, self.options, self.where)
        except BaseException:
            link.close()  # a reply may still be under way
            raise
        finally:
            pinned.close()
            node.give(link)

    def _scan(self, node: Node, match: str, count: int) -> Iterator[bytes]:
        for attempt in range(4):
            try:
                with self._pinned(node) as session:
                    yield from session.scan(match, count=count)
                    return
            except ReconnectedError:
                # Cursors of an earlier life mean nothing to the next one.
                if attempt == 3:
                    raise


class ServerSession(Server):
    """A server seen through one connection; see Server.session."""

    @contextlib.contextmanager
    def session(self, queue: str) -> Iterator[ServerSession]:
        """Itself: a session within a session is the same one."""
        yield self

    def scan(self, match: str = "*", *, count: int = 1000) -> Iterator[bytes]:
        """The keys of this node that match; a key may come twice."""
        cursor = b"0"
        while True:
            cursor, keys = self.read("SCAN", cursor, "MATCH", match, "COUNT", count)
            yield from keys
            if cursor == b"0":
                return

    def close(self) -> None:
        """Nothing: the ``with`` that opened it closes it."""


def _slot(queue: str) -> int:
    return slot(keyspace.keys_of(queue).base)


def connect(url: str, options: ConnectionOptions | None = None, *, base_dir: str | Path | None = None) -> Server:
    """Opens `url` (see ``connection.url``), having looked at the version fence.

    `base_dir`: what ``embedded`` lies under (the config file's folder; default: the working directory). Raises
    BadInputError, UnreachableError, and IncompatibleError for a wire version that is not accepted.
    """
    target = parse(url, options, base_dir)
    check_files(target)
    kinds: dict[str, Callable[[Target], Topology]]
    kinds = {"embedded": Embedded, "sentinel": Sentinels, "cluster": Cluster}
    topology = kinds.get(target.kind, Standalone)(target)
    plain = CommandDispatcher(topology, target.options)

    def look() -> None:
        [found] = plain.send([Call.of(("GET", keyspace.VERSION_KEY))], repeatable=True)
        if isinstance(found, EmqError):
            raise found
        if found is not None:
            accept(found.decode("utf-8", "replace"), target.options, target.where)

    gate = Gate(look, remembers=not topology.single)
    sender = CommandDispatcher(topology, target.options, gate)
    try:
        gate.enter()
    except BaseException:
        topology.close()
        raise
    return Server(sender, topology, target.options, target.where, gate)
