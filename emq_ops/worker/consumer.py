"""The consumer: recover, promote, claim and handle until empty, then park (docs/protocol.md, *Worker loop*)."""

from __future__ import annotations

import math
import queue as queue_module
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from emq_ops.protocol import native
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue, positive
from emq_ops.protocol.transitions.claims import Claim
from emq_ops.protocol.wire_fence import claim_version
from emq_ops.worker import outage
from emq_ops.worker.events import ConsumerReport, JobLeaseLost, Listener, Signalled
from emq_ops.worker.handlers import Handler
from emq_ops.worker.hands import Bench, Hands, SingleHands
from emq_ops.worker.held_jobs import HeldJob, HeldJobs, lease_clock
from emq_ops.worker.idle_timeout import IdleTimeout
from emq_ops.worker.keeper import Keeper
from emq_ops.worker.listener import CancelListener
from emq_ops.worker.maintainer import Maintainer
from emq_ops.worker.retrying_task import RetryingTask
from emq_ops.worker.settings import ConsumerSettings
from emq_ops.worker.settle import Settler
from emq_ops.worker.sources import Sources
from emq_ops.worker.tally import EventCounter

SHORTEST_PARK_S, LONGEST_PARK_S = 0.01, 1.0
"""However long the beat is, a request to stop is seen within the longest park."""
SHORT_WORK_S, GATHER_S = 0.02, 0.001
"""Where jobs are done so soon after their claim, others are waited for a moment: one claim fills several places."""


class Consumer:
    """Works one queue with `handler`, up to `concurrency` jobs at once (a short form of ``settings.concurrency``).
    `on_event` is told everything, from several threads.

    Flow children are settled with their parent in one step; a parent that is claimed can ask what they returned.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Handler | Callable[..., Any],
        settings: ConsumerSettings | None = None,
        *,
        concurrency: int | None = None,
        on_event: Listener | None = None,
    ) -> None:
        settings = settings or ConsumerSettings()
        if concurrency is not None:
            settings = replace(settings, concurrency=concurrency)
        self._settings = settings
        self._queue = queue
        self._executor = native.executor(queue.server, settings.executor)
        self._tally = EventCounter(queue.name, on_event or outage.log)
        self._emit = self._tally.emit
        self._held = HeldJobs()
        self._finished: queue_module.SimpleQueue[None] = queue_module.SimpleQueue()
        self._halted = threading.Event()
        self._begun = self._stopping = False
        self._until = 0.0
        self._next_beat = 0.0
        self._claimed = 0.0
        self._gathers = max(1, settings.concurrency // 2)
        self._thread: threading.Thread | None = None
        self._ended: ConsumerReport | BaseException | None = None
        self._maintainer = Maintainer(queue, settings, self._executor, self._emit)
        self._parking = RetryingTask("park", queue.name, self._emit)
        self._sources = Sources(queue, settings, self._emit)
        self._settler = Settler(queue, settings, self._emit, self._lose, self._halted)
        self._listener = CancelListener(queue, self._held, self._emit, self._tell) if settings.cancel else None
        self._keeper = Keeper(queue, settings, self._held, self._executor, self._emit, self._lose)
        bench = Bench(queue, self._executor, self._held, self._settler, self._emit, self._lose, self._done)
        self._hands = self._make_hands(bench, handler, settings.concurrency)

    def _make_hands(self, bench: Bench, handler: Callable[..., Any], size: int) -> Hands:
        return SingleHands(bench, handler, size)

    def run(self, *, signals: bool = False, until_idle: bool = False, give_up: int | None = None) -> ConsumerReport:
        """Works until it is stopped; once only. `signals`: SIGTERM and SIGINT stop it, a second one at once (main
        thread only). `until_idle`: ends when nothing can be claimed and nothing is in hand; scheduled jobs wait on.
        `give_up`: with `until_idle`, ms after which jobs in hand that show no sign of life (a checkpoint: extend,
        progress, log) are left, and reported as abandoned, once nothing else can be claimed; None: they are waited for.

        A server that is away, a damaged row, a refusal: reported, and tried again, never raised. Raises BadInputError
        when it has run before.
        """
        if self._begun:
            raise BadInputError("this consumer has run already", where=self._queue.name, fix="make a new one")
        self._begun = True
        give_up = None if give_up is None else positive(give_up, "give_up")
        idle_timeout = IdleTimeout(self._queue.name, self._held, self._emit, give_up) if until_idle else None
        with self._signals() if signals else _nothing():
            try:
                self._open()
                while not self._stopping:
                    self._turn(until_idle)
                    if idle_timeout is not None and not self._stopping and idle_timeout.over():
                        self.stop(0)
                self._drain()
                self._maintainer.tell_aside()
            finally:
                self._close()
        return self._tally.report(tuple(self.in_hand))

    def start(self) -> None:
        """Runs on a thread of its own."""
        self._thread = threading.Thread(target=self._run_aside, name=f"emq-consumer-{self._queue.name}", daemon=True)
        self._thread.start()

    def stop(self, deadline: int | None = None) -> None:
        """Nothing more is claimed; jobs in hand have `deadline` ms (the consumer's own unless given) to settle. Returns
        at once. May be called from a signal handler, and again with a shorter deadline."""
        self._until = time.monotonic() + (self._settings.stop_deadline if deadline is None else deadline) / 1000
        self._stopping = True
        self._finished.put(None)

    def join(self, timeout: float | None = None) -> ConsumerReport | None:
        """Waits up to `timeout` seconds for the end of what `start` began. None: it still runs."""
        assert self._thread is not None, "start it first"
        self._thread.join(timeout)
        if isinstance(self._ended, BaseException):
            raise self._ended
        return self._ended

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    @property
    def in_hand(self) -> list[str]:
        """The jobs in hand at this moment."""
        return [held.claim.job for held in self._held.all()]

    # The loop.

    def _run_aside(self) -> None:
        try:
            self._ended = self.run()
        except BaseException as fault:  # noqa: BLE001  # handed to whoever joins
            self._ended = fault

    def _open(self) -> None:
        if self._settings.claim_version:
            claim_version(self._queue.server)
        self._keeper.start()
        if self._listener is not None:
            self._listener.start()
            self._listener.ready.wait(1)  # so that the first jobs can be cancelled; a dead channel holds up nothing

    def _turn(self, until_idle: bool) -> None:
        self._hands.tend()
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self._settings.beat / 1000 * random.uniform(0.9, 1.1)
            if self._maintainer.beat():
                self._sources.rouse()
        self._gather()
        free = self._hands.free
        if self._hands.due < math.inf:
            self._sources.rouse()  # more jobs of a batch are looked for soon
        bare = not self._held
        if until_idle and bare:
            # A look from before our last job was settled says nothing: that job may have freed its lane.
            self._sources.rouse()
        if free > 0:
            asked, asked_lease = time.monotonic(), lease_clock()
            claims = self._sources.claim(free)
            if claims:
                self._claimed = asked
                self._take(claims, asked, asked_lease)
            self._hands.begin(free, len(claims))
            if claims:
                return
            if until_idle and bare and self._sources.idle:
                self.stop()
                return
        self._wait(free, park=not (until_idle and self._held))

    def _take(self, claims: list[Claim], asked: float, asked_lease: float) -> None:
        taken = [HeldJob(claim, asked_lease + self._settings.lease / 1000) for claim in claims]
        for held in taken:
            self._held.add(held)
        if self._executor.name == "native":
            # The script that claims knows nothing of lease epochs; without one a native sweep would never count.
            self._keeper.stamp(taken)
        for held in taken:
            if self._listener is not None:
                self._listener.catch_up(held, asked)
            self._hands.take(held)

    def _wait(self, free: int, *, park: bool) -> None:
        """Until something may have come: a token on ``wake``, a job of ours that is done, or the next beat."""
        until = min(self._next_beat, self._sources.next_look, self._hands.due) if free > 0 else self._next_beat
        seconds = max(SHORTEST_PARK_S, min(until - time.monotonic(), LONGEST_PARK_S))
        if free > 0 and park and self._sources.woken and not self._sources.at_ceiling:
            if time.monotonic() >= self._parking.next:
                if self._parking.attempt(lambda: self._queue.server.write("BLPOP", self._queue.keys.wake, seconds)):
                    self._sources.rouse()
                return
            seconds = min(seconds, max(SHORTEST_PARK_S, self._parking.next - time.monotonic()))
        try:
            self._finished.get(timeout=seconds)
        except queue_module.Empty:
            return
        self._sources.freed()
        if not park:
            self._sources.rouse()

    def _gather(self) -> None:
        """Where handlers are done within moments, their places are claimed for together: a round trip for several."""
        now = time.monotonic()
        until = now + GATHER_S if now - self._claimed < SHORT_WORK_S else now
        while 0 < self._hands.free < self._gathers and (left := until - time.monotonic()) > 0:
            try:
                self._finished.get(timeout=left)
            except queue_module.Empty:
                return

    def _drain(self) -> None:
        self._hands.begin_all()
        while self._held and (left := self._until - time.monotonic()) > 0:
            self._hands.tend()
            try:
                self._finished.get(timeout=min(left, 1.0))
            except queue_module.Empty:
                continue

    def _close(self) -> None:
        self._halted.set()
        self._keeper.stop()
        if self._listener is not None:
            self._listener.stop()
        self._hands.close()

    # What the other parts tell us.

    def _done(self) -> None:
        self._finished.put(None)

    def _lose(self, held: HeldJob, why: str) -> None:
        if self._held.lose(held):
            self._emit(JobLeaseLost(self._queue.name, held.claim.job, held.claim.token, why))

    def _tell(self, held: HeldJob, reason: str) -> None:
        if held.token.cancel(reason):
            self._emit(Signalled(self._queue.name, held.claim.job, held.claim.token, reason))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def on_signal(*_: Any) -> None:
            self.stop(0 if self._stopping else None)

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
