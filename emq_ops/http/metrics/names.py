"""Which queues have series of their own: a bounded number; the others are told together."""

from __future__ import annotations

from collections.abc import Iterable

OTHERS = "*"
"""The label of all others together; no queue is called so."""


class Shown:
    """The first `most` of `queues` by name have series of their own."""

    def __init__(self, queues: Iterable[str], most: int) -> None:
        names = sorted(set(queues))
        self._own = frozenset(names[:most])
        self.summed = max(0, len(names) - most)
        """How many queues are told together."""

    def label(self, queue: str) -> str:
        """What `queue` is told as."""
        return queue if queue in self._own else OTHERS
