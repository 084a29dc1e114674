"""The consumer of an event stream: one of a group, each entry handled at least once by somebody in it."""

from __future__ import annotations

import inspect
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from emq_ops.protocol import ids
from emq_ops.protocol.errors import EmqError, ServerError
from emq_ops.protocol.keyspace import stream_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import groups
from emq_ops.protocol.transitions.groups import Delivered, Member
from emq_ops.protocol.transitions.streams import StreamRecord, record
from emq_ops.worker import outage
from emq_ops.worker.events import Listener, Trouble
from emq_ops.worker.handlers import AsyncLoop
from emq_ops.worker.retrying_task import RetryingTask, patience
from emq_ops.worker.stream_events import EntryOutcome, EntrySettled, StreamReport
from emq_ops.worker.stream_hand import StreamHand
from emq_ops.worker.stream_settings import StreamEntry, StreamSettings
from emq_ops.worker.verdicts import Dead, Failed, Retry, failure_of, verdict_of

StreamHandler = Callable[[StreamEntry], Any]
"""Takes an entry; it is acknowledged unless the handler raises, or returns Retry or Dead. May be async."""


class StreamConsumer:
    """Consumes a stream of a queue. An entry that fails, or whose consumer dies, comes again once it is idle, to
    whoever of the group looks first. `on_event` is told everything.

    At its start it reads what stands under its own name once; what was trimmed meanwhile is acknowledged.
    """

    def __init__(
        self,
        queue: Queue,
        stream: str,
        handler: StreamHandler,
        settings: StreamSettings,
        *,
        on_event: Listener | None = None,
    ) -> None:
        consumer = settings.consumer or f"{socket.gethostname()}-{os.getpid()}"
        self._queue = queue
        self._member = Member(stream_name(stream), settings.group, consumer)
        self._handler = handler
        self._settings = settings
        self._dead = stream_name(settings.dead or f"{stream}.dead")
        self._listener = on_event or outage.log
        self._async = AsyncLoop()
        self._stop = threading.Event()
        self._counts: Counter[str] = Counter()
        self._behind = "0" if settings.start == "head" else "$"
        self._made = False
        self._next_claim = 0.0
        self._working = RetryingTask(f"read {stream}", queue.name, self._listener)
        self._hand = StreamHand(queue, self._member, settings, self._listener)

    def run(self, *, signals: bool = False, until_idle: bool = False) -> StreamReport:
        """Works until it is stopped, or with `until_idle` until there is nothing to read. `signals`: SIGTERM and SIGINT
        stop it (main thread only). What the server refuses is told and tried again, never raised."""
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
        self._hand.start()
        try:
            began = False
            while not self._stop.is_set():
                if not self._made:
                    self._made = bool(self._working.attempt(self._make))
                elif not began:
                    began = bool(self._working.attempt(self._own))
                else:
                    found = self._working.attempt(lambda: self._beat(wait=not until_idle))
                    if until_idle and found == 0:
                        break
                self._stop.wait(max(0.0, min(self._working.next - time.monotonic(), 1.0)))
        finally:
            self._hand.stop()
            self._async.stop()
        counts = {name: self._counts[name] for name in ("handled", "failed", "dead", "gone", "lost")}
        report = StreamReport(self._queue.name, **counts)
        self._listener(report)
        return report

    def stop(self) -> None:
        """Nothing more is begun; what was read and not begun stays in the group's list. Returns at once."""
        self._stop.set()

    def _make(self) -> bool:
        groups.create(self._queue, self._member.stream, self._member.group, self._behind)
        return True

    def _own(self) -> bool:
        """What this name left behind in an earlier life, each once."""
        cursor = "0"
        while not self._stop.is_set():
            page = groups.own(self._queue, self._member, cursor, self._settings.count)
            if not page:
                break
            self._work(page)
            cursor = page[-1].stream_id
        return True

    def _beat(self, *, wait: bool) -> int:
        """Takes over what is idle, then reads what is new; returns how many entries there were."""
        try:
            found = 0
            if not wait or time.monotonic() >= self._next_claim:
                found = self._take_over()
                self._next_claim = time.monotonic() + self._settings.beat / 1000
            if self._stop.is_set():
                return found
            block = self._settings.beat if wait and not found else None
            page = groups.fresh(self._queue, self._member, self._settings.count, block_ms=block)
            self._work(page)
            if page:
                self._behind = page[-1].stream_id
            return found + len(page)
        except ServerError as refusal:
            if refusal.code == "NOGROUP":
                self._made = False  # it is made again behind what was read from it
            raise

    def _take_over(self) -> int:
        found, cursor = 0, "0-0"
        while not self._stop.is_set():
            cursor, page = groups.take_over(
                self._queue, self._member, self._settings.min_idle, cursor, self._settings.count
            )
            self._work(page)
            found += len(page)
            if cursor == "0-0":
                break
        return found

    def _work(self, page: Sequence[Delivered]) -> None:
        gone = [one.stream_id for one in page if one.flat is None]
        there = [record(one.stream_id.encode("ascii"), one.flat) for one in page if one.flat is not None]
        groups.acknowledge(self._queue, self._member, gone)
        for stream_id in gone:
            self._tell(ids.from_stream_id(stream_id), 0, "gone")
        if not there:
            return
        self._hand.hold([one.stream_id for one in there])
        try:
            counts = groups.deliveries(self._queue, self._member, [one.stream_id for one in there])
            for one, attempts in zip(there, counts, strict=True):
                if self._stop.is_set():
                    return
                if attempts and not self._hand.lost(one.stream_id):
                    self._one(one, attempts)
                else:
                    self._tell(one.event, attempts, "lost")
                self._hand.drop(one.stream_id)
        finally:
            self._hand.clear()

    def _one(self, entry: StreamRecord, attempts: int) -> None:
        limit = self._settings.attempts
        if limit is not None and attempts > limit:
            failure = Failed(f"delivered {attempts} times, and never handled".encode(), last=True)
        else:
            failed = self._call(entry, attempts)
            if failed is None:
                self._insist(lambda: groups.acknowledge(self._queue, self._member, [entry.stream_id]))
                return self._tell(entry.event, attempts, "handled")
            failure = failed
        text = failure.error.decode("utf-8", "backslashreplace")
        if failure.last or (limit is not None and attempts >= limit):
            self._insist(lambda: self._bury(entry, attempts, failure.error))
            return self._tell(entry.event, attempts, "dead", text)
        return self._tell(entry.event, attempts, "failed", text)

    def _call(self, entry: StreamRecord, attempts: int) -> Failed | None:
        """None: it was handled."""
        one, member = entry.stream_id, self._member
        given = StreamEntry(
            self._queue.name, member.stream, entry.event, one, entry.fields, attempts, lambda: self._hand.lost(one)
        )
        try:
            returned = self._handler(given)
            if inspect.isawaitable(returned):
                returned = self._async.run(returned)
        except BaseException as fault:  # noqa: BLE001  # whatever a handler raises is its entry's error, never our crash
            return failure_of(fault)
        verdict = verdict_of(returned) if isinstance(returned, Retry | Dead) else None
        return verdict if isinstance(verdict, Failed) else None

    def _bury(self, entry: StreamRecord, attempts: int, error: bytes) -> None:
        ours: list[tuple[bytes | str, bytes | str]] = [
            ("dead_of", self._member.stream),
            ("dead_entry", entry.event or entry.stream_id),
            ("dead_group", self._member.group),
            ("dead_attempts", str(attempts)),
            ("dead_error", error),
        ]
        groups.bury(self._queue, self._member, entry.stream_id, self._dead, [*ours, *entry.fields])

    def _insist(self, call: Callable[[], object]) -> None:
        """Until it is done, however long the server is away or refuses, or the consumer is stopped: then the entry
        comes again. Doing it twice is doing it once."""
        failures = 0
        while True:
            try:
                call()
                return
            except EmqError as fault:
                failures += 1
                wait_ms = patience(fault).delay(failures)
                self._listener(Trouble(self._queue.name, "settle an entry", fault, wait_ms, failures - 1))
                if self._stop.wait(wait_ms / 1000):
                    raise

    def _tell(self, entry: object, attempts: int, outcome: EntryOutcome, detail: str = "") -> None:
        self._counts[outcome] += 1
        self._listener(EntrySettled(self._queue.name, self._member.stream, str(entry or ""), attempts, outcome, detail))
