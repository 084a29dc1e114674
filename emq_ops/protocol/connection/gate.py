"""A look at the server before anything is sent to it: after a start, and again after a lost connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import EmqError, UnreachableError

LOOK_SECONDS, LOOK_AGAIN_SECONDS = 1.0, 5.0
"""How long a second look may take, and after how long it is tried again."""


class Gate:
    """`look` raises an EmqError to refuse the server. `remembers`: where the members of a place are known (a Cluster),
    what was found once holds while it is looked at again, in a thread of its own: one shard that is away or hangs
    stops no other. Thread-safe."""

    def __init__(self, look: Callable[[], None], *, remembers: bool) -> None:
        self._look, self._remembers = look, remembers
        self._open = self._known = False
        self._refusal: EmqError | None = None
        self._next_look = 0.0
        self._lock = threading.Lock()

    def close(self) -> None:
        """A connection was lost: look before anything else is sent."""
        self._open = False

    def enter(self) -> None:
        """Looks where that is due. Raises what the look raises."""
        if self._open:
            return
        if self._known and self._remembers:
            if time.monotonic() >= self._next_look and self._lock.acquire(blocking=False):
                threading.Thread(target=self._look_again, name="version", daemon=True).start()
            if self._refusal is not None:
                raise self._refusal
            return
        with self._lock:
            if not self._open:
                self._look()
                self._open = self._known = True

    def _look_again(self) -> None:
        """Holds the lock, and gives it back."""
        try:
            with deadline(LOOK_SECONDS):
                self._look()
            self._open, self._refusal = True, None
        except UnreachableError:
            self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        except EmqError as refusal:
            self._refusal = refusal
            self._next_look = time.monotonic() + LOOK_SECONDS
        finally:
            self._lock.release()
