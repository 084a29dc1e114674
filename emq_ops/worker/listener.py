"""Cancel events from the queue's channel, forwarded to the claim that they are for."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from emq_ops.protocol.connection.subscription import Subscription
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions.cancel import DEFAULT_REASON
from emq_ops.worker.events import Listener
from emq_ops.worker.held_jobs import HeldJob, HeldJobs
from emq_ops.worker.retrying_task import RetryingTask

REMEMBERED, REMEMBER_S = 1_024, 30.0


def cancel_event(data: bytes) -> tuple[str, str] | None:
    """Job and reason of a cancel event; None for any other message, well-formed or not."""
    try:
        event = json.loads(data)
    except ValueError:
        return None
    if not isinstance(event, dict) or event.get("event") != "cancel" or not isinstance(event.get("job"), str):
        return None
    reason = event.get("reason")
    return event["job"], reason if isinstance(reason, str) and reason else DEFAULT_REASON


class CancelListener:
    """`tell` is called with a claim in hand and the reason. An event may be here before the reply of the claim that it
    is for: so those without a claim are remembered for a while, and `catch_up` looks through them."""

    def __init__(self, queue: Queue, held_jobs: HeldJobs, emit: Listener, tell: Callable[[HeldJob, str], None]) -> None:
        self._queue = queue
        self._held = held_jobs
        self._tell = tell
        self._listening = RetryingTask("listen for cancellations", queue.name, emit)
        self._early: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.ready = threading.Event()
        """Set once it listens."""
        self._thread = threading.Thread(target=self._run, name=f"emq-cancel-{queue.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(1)

    def catch_up(self, held: HeldJob, asked: float) -> None:
        """Tells a claim that was just taken in hand, and asked for at `asked` (monotonic), what came since then."""
        with self._lock:
            reason, at = self._early.pop(held.claim.job, ("", 0.0))
        if reason and at >= asked:
            self._tell(held, reason)

    def _run(self) -> None:
        while not self._ended.is_set():
            subscription = self._listening.attempt(lambda: self._queue.server.subscribe(self._queue.keys.events))
            if subscription is None:
                self._ended.wait(min(max(self._listening.next - time.monotonic(), 0.01), 1))
                continue
            with subscription:
                self.ready.set()
                self._listen(subscription)

    def _listen(self, subscription: Subscription) -> None:
        while not self._ended.is_set():
            message = self._listening.attempt(lambda: subscription.get(0.1))
            if message is not None:
                found = cancel_event(message.data)
                if found is not None:
                    self._forward(*found)
            elif time.monotonic() < self._listening.next:
                self._ended.wait(min(self._listening.next - time.monotonic(), 1))

    def _forward(self, job: str, reason: str) -> None:
        now = time.monotonic()
        with self._lock:
            held = self._held.latest(job)
            if held is None:
                self._early[job] = (reason, now)
                while len(self._early) > REMEMBERED or next(iter(self._early.values()))[1] < now - REMEMBER_S:
                    self._early.popitem(last=False)
        if held is not None:
            self._tell(held, reason)
