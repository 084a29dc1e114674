"""The entries that a stream's consumer has in hand, and a thread that keeps them from standing still."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import groups
from emq_ops.protocol.transitions.groups import Member
from emq_ops.worker.events import Trouble, WorkerEvent
from emq_ops.worker.stream_settings import StreamSettings

KEEPS_A_LEASE = 3


class StreamHand:
    """The entries in hand, and a thread that keeps them from standing still. Thread-safe."""

    def __init__(
        self, queue: Queue, member: Member, settings: StreamSettings, emit: Callable[[WorkerEvent], None]
    ) -> None:
        self._queue, self._member, self._emit = queue, member, emit
        self._seconds = max(settings.min_idle / KEEPS_A_LEASE, 50) / 1000
        self._held: set[str] = set()
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"emq-keep-{member.stream}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(1)

    def hold(self, stream_ids: Sequence[str]) -> None:
        with self._lock:
            self._held = set(stream_ids)
            self._lost = set()

    def drop(self, stream_id: str) -> None:
        with self._lock:
            self._held.discard(stream_id)

    def clear(self) -> None:
        self.hold([])

    def lost(self, stream_id: str) -> bool:
        with self._lock:
            return stream_id in self._lost

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            with self._lock:
                held = sorted(self._held)
            if not held:
                continue
            try:
                gone = groups.keep(self._queue, self._member, held)
            except EmqError as fault:
                self._emit(Trouble(self._queue.name, "keep entries", fault, round(self._seconds * 1000), 0))
                continue
            with self._lock:
                self._lost |= set(gone) & self._held
