"""Listening to channels, on a link of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emq_ops.protocol.connection.link import ConnectionLost, Link
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.replies import ErrorReply, reply_error
from emq_ops.protocol.connection.topology import Topology
from emq_ops.protocol.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class Message:
    """One message: the channel as text, and the data as it was published."""

    channel: str
    data: bytes


class Subscription:
    """A standing subscription. Delivery is at most once: what was published while the connection was away is lost,
    and `gaps` counts how often that may have been. For one thread at a time."""

    def __init__(self, topology: Topology, channels: tuple[str, ...], seconds: float) -> None:
        self.gaps = 0
        self._topology = topology
        self._node: Node | None = None
        self._channels = channels
        self._seconds = seconds
        self._link: Link | None = None
        self._early: list[Any] = []
        self._open()

    def get(self, timeout: float) -> Message | None:
        """The next message, or None when none came within `timeout` seconds.

        A lost connection is opened again. Raises UnreachableError where that fails (the next call tries again), and
        ServerError for a channel that the ACL user may not listen to.
        """
        if self._link is not None and self._node is not None and not self._topology.serves(self._node):
            self.close()  # nobody publishes there any more
            self.gaps += 1
        if self._link is None:
            self._open()
            return None
        try:
            frame = self._early.pop(0) if self._early else self._link.wait(timeout)
        except ConnectionLost:
            self.gaps += 1
            self._link = None
            return None
        if isinstance(frame, list) and frame[0] == b"message":
            return Message(frame[1].decode("utf-8", "replace"), frame[2])
        return None

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        try:
            self._node = self._topology.node(None)
            link = self._node.fresh()
        except UnreachableError:
            self._topology.doubt()  # the next attempt asks where the primary is now
            raise
        try:
            link.send([("SUBSCRIBE", *self._channels)], self._seconds)
            missing = len(self._channels)
            while missing:
                frame = link.receive(self._seconds)
                if isinstance(frame, ErrorReply):
                    raise reply_error(frame.text, link.where)
                if frame[0] == b"subscribe":
                    missing -= 1
                else:
                    self._early.append(frame)
        except ConnectionLost as fault:
            raise UnreachableError(f"the connection was lost: {fault}", where=link.where) from fault
        except BaseException:
            link.close()
            raise
        self._link = link
