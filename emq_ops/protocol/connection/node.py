"""A node: one address and the idle links to it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from emq_ops.protocol.connection.link import Link
from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.url import Address

KEPT = 16
"""Idle links kept; more are opened as threads want them, and closed when they are given back."""


class Replaced(Exception):
    """An idle link turned out to be dead: what answers at this address now may be another server, or another life."""


class Node:
    """Thread-safe. `admit` looks at each fresh link and raises an EmqError to refuse it (a demoted primary ...)."""

    def __init__(
        self,
        address: Address,
        options: ConnectionOptions,
        where: str,
        *,
        tls: bool = False,
        admit: Callable[[Link], None] | None = None,
    ) -> None:
        self.address = address
        self.where = where
        self._options = options
        self._tls = tls
        self._admit = admit
        self._idle: list[Link] = []
        self._lock = threading.Lock()

    def take(self, *, strict: bool = False) -> Link:
        """A link in good order: an idle one whose server has not closed it, else a fresh one.

        Looking before sending keeps a server's restart from making a write's outcome unknown. Raises UnreachableError
        or DeadlineError, and with `strict` Replaced where idle links were dead (they are gone then); nothing was sent.
        """
        dead = False
        while True:
            with self._lock:
                if not self._idle:
                    break
                link = self._idle.pop()
            if link.usable():
                return link
            link.close()
            dead = True
        if dead and strict:
            raise Replaced
        return self.fresh()

    def fresh(self) -> Link:
        """A link of the caller's own, newly opened. Raises UnreachableError or DeadlineError."""
        link = Link(self.address, self._options, self.where, tls=self._tls).open()
        if self._admit is not None:
            try:
                self._admit(link)
            except BaseException:
                link.close()
                raise
        return link

    def give(self, link: Link) -> None:
        """Takes a link back for the next caller; one that ended just goes. No reply may be under way on it."""
        with self._lock:
            if link.is_open and len(self._idle) < KEPT:
                self._idle.append(link)
                return
        link.close()

    def drop(self) -> None:
        """Closes the idle links, so that the next caller opens a fresh one."""
        with self._lock:
            links, self._idle = self._idle, []
        for link in links:
            link.close()
