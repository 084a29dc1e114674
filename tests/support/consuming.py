"""What tests of workers share: bounded waiting, events, the records of a stream, lapsed leases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import enqueue
from emq_ops.worker import Consumer, ConsumerSettings
from emq_ops.worker.events import ConsumerReport, Settled, Trouble, WorkerEvent
from tests.support.waiting import first_true

T = TypeVar("T")


def eventually(condition: Callable[[], T], what: str, timeout: float = 20) -> T:
    """The first truthy answer of `condition`; fails the test after `timeout` seconds."""
    return first_true(condition, timeout, lambda: f"never: {what}")


class Told:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []
        self._lock = threading.Lock()

    def __call__(self, event: WorkerEvent) -> None:
        with self._lock:
            self.events.append(event)

    def of(self, kind: type[T]) -> list[T]:
        with self._lock:
            return [event for event in self.events if isinstance(event, kind)]

    def outcomes(self) -> dict[str, list[str]]:
        """Job to the outcomes of its settlements, in order."""
        found: dict[str, list[str]] = {}
        for event in self.of(Settled):
            found.setdefault(event.job, []).append(event.outcome)
        return found

    def troubles(self) -> list[tuple[str, str]]:
        """Task and error of each trouble."""
        return [(event.task, str(event.error)) for event in self.of(Trouble)]


def records(q: Queue, stream: str = "completions") -> list[dict[bytes, bytes]]:
    """The records of a stream in order, each checked: stream id and ``EVT`` id are one number, no field twice."""
    out = []
    for entry_id, flat in q.server.read("XRANGE", q.keys.stream(stream), "-", "+"):
        names = flat[::2]
        assert len(set(names)) == len(names)
        fields = dict(zip(names, flat[1::2], strict=True))
        assert ids.parse(fields[b"id"]).stream_id == entry_id.decode()
        out.append(fields)
    return out


def lapse(q: Queue) -> None:
    """Every lease of the queue lapsed a second ago."""
    late = q.server.now_ms(q.name) - 1000
    for job in q.server.read("ZRANGE", q.keys.active, 0, -1):
        q.server.write("ZADD", q.keys.active, "XX", late, job)


def deadline_of(q: Queue, job: str) -> int | None:
    """The job's lease deadline, server-clock ms; None where it is not in active."""
    score: Any = q.server.read("ZSCORE", q.keys.active, job)
    return None if score is None else int(float(score))


def put(q: Queue, payload: bytes = b"x", group: str | None = None) -> str:
    """A new job of this payload."""
    [job] = put_all(q, payload, group=group)
    return job


def put_all(q: Queue, *payloads: bytes, group: str | None = None) -> list[str]:
    """A new job of each payload, in mint order."""
    found = [ids.mint() for _ in payloads]
    for job, payload in zip(found, payloads, strict=True):
        assert enqueue.enqueue(q, job, payload, group=group)
    return found


def run(q: Queue, handler: Any, **options: Any) -> tuple[ConsumerReport, Told]:
    """A consumer's run until the queue is idle, and what it told."""
    told = Told()
    return Consumer(q, handler, ConsumerSettings(**options), on_event=told).run(until_idle=True), told
