"""Transitions of many threads in few flushes: while one flush is under way, the calls behind it gather for the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Arg
from emq_ops.protocol.transitions.settle import complete_together


class _Waiting:
    """A call and, once it was sent, its reply or error."""

    __slots__ = ("args", "keys", "reply", "script", "sent")

    def __init__(self, script: str, keys: Sequence[str], args: Sequence[Arg]) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.sent = False
        self.reply: Any = None


class CombiningQueue(Queue):
    """A Queue whose `run` shares flushes between threads. A call alone goes out at once; the order between calls of
    different threads is not kept."""

    __slots__ = ("_sending", "_waiting", "_waiting_lock")

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue.server, queue.name)
        self._waiting: list[_Waiting] = []
        self._waiting_lock = threading.Lock()
        self._sending = threading.Lock()

    def run(self, script: str, keys: Sequence[str], *args: Arg, readonly: bool = False) -> Any:
        """As Queue.run. Raises what this call came to."""
        if readonly:
            return super().run(script, keys, *args, readonly=True)
        call = _Waiting(script, keys, args)
        with self._waiting_lock:
            self._waiting.append(call)
        with self._sending:
            if not call.sent:
                self._flush()
        if isinstance(call.reply, BaseException):
            raise call.reply
        return call.reply

    def _flush(self) -> None:
        with self._waiting_lock:
            calls, self._waiting = self._waiting, []
        for script in dict.fromkeys(call.script for call in calls):
            part = [call for call in calls if call.script == script]
            try:
                asked = [(call.keys, call.args) for call in part]
                together = script == "complete" and len(part) > 1
                replies: list[Any] = complete_together(self, asked) if together else self.run_many(script, asked)
            except BaseException as fault:  # noqa: BLE001  # raised by each of the threads that wait for it
                replies = [fault] * len(part)
            for call, reply in zip(part, replies, strict=True):
                call.reply = reply
                call.sent = True
