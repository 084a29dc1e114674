"""The consumer: recover, promote, claim and handle until empty, then park (docs/protocol.md, *Worker loop*)."""

from __future__ import annotations

import logging
import queue as queues
import random
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Self

from emq_ops.protocol import native
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import stream_name
from emq_ops.protocol.queue import Queue, not_negative, positive
from emq_ops.protocol.transitions import recover
from emq_ops.protocol.transitions.claims import Claim
from emq_ops.protocol.transitions.settle import COMPLETIONS
from emq_ops.worker import events
from emq_ops.worker.backoff import Backoff
from emq_ops.worker.duty import Duty
from emq_ops.worker.events import Event, Lost, Recovered, Report, Settled, Signalled, Started
from emq_ops.worker.handlers import AsyncLoop, Handler, Pool, call
from emq_ops.worker.hands import Hands, Held, lease_clock
from emq_ops.worker.job import Job
from emq_ops.worker.keeper import Keeper
from emq_ops.worker.listener import CancelListener
from emq_ops.worker.settle import Settler
from emq_ops.worker.sources import SERVES, Sources
from emq_ops.worker.vigil import Vigil

RECOVERIES = ("reap", "stalled", "none")
SLICE, SLICES = 100, 10
"""Jobs a call, and calls a beat, of recovering and promoting."""
SHORTEST_PARK_S, LONGEST_PARK_S = 0.01, 1.0
"""However long the beat is, a request to stop is seen within the longest park."""
_log = logging.getLogger("emq_ops.worker")


class Consumer:
    """Works one queue with `handler`, up to `concurrency` jobs at once. All times are ms.

    `recovery`: what this worker does about lapsed leases of whichever worker: ``reap`` (back to wait, uncounted),
    ``stalled`` (the counted sweep, `max_stalled`), or ``none`` (another does). `cancel`: listens for cancel events.
    `record`: adds a record of each completed, cancelled or dead job to `stream`, in the step that settles it.

    `lease`: how long a claim stands unless it is extended. `keep`: the keeper extends it every third of that, for as
    long as the process lives; without it just the handler's own checkpoints do, so that a handler that hangs is found
    out. `beat`: how often it recovers and promotes, and looks for flat jobs. `max_attempts`: an error at that attempt
    is the last; `backoff`: how long a failed job waits.

    `serve`: ``flat`` jobs, ``lanes``, or ``both``. `executor`: ``script`` or ``native``. `stop_deadline`: how long the
    jobs in hand have once it stops. `claim_version`: writes the wire version where none stands. `node`: 0..1023, our
    part of ``EVT`` ids (random unless given). `on_event`: is told everything; called from several threads.

    A job with a flow parent is never claimed: it is reported, and left to a worker that settles with the parent.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Handler,
        *,
        concurrency: int = 8,
        recovery: Literal["reap", "stalled", "none"] = "reap",
        max_stalled: int = 1,
        cancel: bool = True,
        record: bool = True,
        stream: str = COMPLETIONS,
        lease: int = 30_000,
        keep: bool = True,
        beat: int = 1_000,
        max_attempts: int = 3,
        backoff: Backoff | None = None,
        serve: Literal["both", "flat", "lanes"] = "both",
        executor: native.ExecutorName = "script",
        stop_deadline: int = 10_000,
        claim_version: bool = False,
        node: int | None = None,
        on_event: events.Listener | None = None,
    ) -> None:
        if recovery not in RECOVERIES:
            raise BadInputError(f"no recovery '{recovery}'", fix=", ".join(RECOVERIES))
        if serve not in SERVES:
            raise BadInputError(f"can't serve '{serve}'", fix=", ".join(SERVES))
        if node is not None and not 0 <= node <= 1023:
            raise BadInputError(f"node {node} is not within 0..1023")
        self._queue = queue
        self._handler = handler
        self._concurrency = positive(concurrency, "concurrency")
        self._recovery = recovery
        self._max_stalled = positive(max_stalled, "max_stalled")
        self._lease = positive(lease, "lease")
        self._beat = positive(beat, "beat")
        self._stop_deadline = not_negative(stop_deadline, "stop_deadline")
        self._claim_version = claim_version
        self._on_event = on_event or events.log
        self._executor = native.executor(queue.server, executor)
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._hands = Hands()
        self._finished: queues.SimpleQueue[None] = queues.SimpleQueue()
        self._halted = threading.Event()
        self._begun = self._stopping = False
        self._until = 0.0
        self._next_beat = 0.0
        self._thread: threading.Thread | None = None
        self._ended: Report | BaseException | None = None
        self._recovering = Duty(f"recover ({recovery})", queue.name, self._emit)
        self._promoting = Duty("promote", queue.name, self._emit)
        self._parking = Duty("park", queue.name, self._emit)
        self._sources = Sources(queue, serve, self._lease, self._beat, self._emit)
        self._settler = Settler(
            queue,
            self._emit,
            self._lose,
            self._halted,
            stream=stream_name(stream) if record else None,
            node=secrets.randbelow(1024) if node is None else node,
            max_attempts=positive(max_attempts, "max_attempts"),
            backoff=backoff or Backoff(),
        )
        self._async = AsyncLoop()
        self._pool = Pool(self._concurrency, self._work, f"emq-worker-{queue.name}")
        self._listener = CancelListener(queue, self._hands, self._emit, self._tell) if cancel else None
        self._keeper = Keeper(queue, self._hands, self._executor, self._lease, self._emit, self._lose, extends=keep)

    def run(self, *, signals: bool = False, until_idle: bool = False, give_up: int | None = None) -> Report:
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
        vigil = Vigil(self._queue.name, self._hands, self._emit, give_up) if until_idle else None
        with self._signals() if signals else _nothing():
            try:
                self._open()
                while not self._stopping:
                    self._turn(until_idle)
                    if vigil is not None and not self._stopping and vigil.over():
                        self.stop(0)
                self._drain()
            finally:
                self._close()
        report = self._report()
        self._emit(report)
        return report

    def start(self) -> None:
        """Runs on a thread of its own."""
        self._thread = threading.Thread(target=self._run_aside, name=f"emq-consumer-{self._queue.name}", daemon=True)
        self._thread.start()

    def stop(self, deadline: int | None = None) -> None:
        """Nothing more is claimed; jobs in hand have `deadline` ms (the consumer's own unless given) to settle. Returns
        at once. May be called from a signal handler, and again with a shorter deadline."""
        self._until = time.monotonic() + (self._stop_deadline if deadline is None else deadline) / 1000
        self._stopping = True
        self._finished.put(None)

    def join(self, timeout: float | None = None) -> Report | None:
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
        return [held.claim.job for held in self._hands.all()]

    # The loop.

    def _run_aside(self) -> None:
        try:
            self._ended = self.run()
        except BaseException as fault:  # noqa: BLE001  # handed to whoever joins
            self._ended = fault

    def _open(self) -> None:
        if self._claim_version:
            self._queue.server.claim_version()
        self._keeper.start()
        if self._listener is not None:
            self._listener.start()
            self._listener.ready.wait(1)  # so that the first jobs can be cancelled; a dead channel holds up nothing

    def _turn(self, until_idle: bool) -> None:
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self._beat / 1000 * random.uniform(0.9, 1.1)
            self._recover_and_promote()
        free = self._concurrency - len(self._hands)
        bare = not self._hands
        if until_idle and bare:
            # A look from before our last job was settled says nothing: that job may have freed its lane.
            self._sources.rouse()
        if free > 0:
            asked, asked_lease = time.monotonic(), lease_clock()
            claims = self._sources.claim(free)
            if claims:
                self._take(claims, asked, asked_lease)
                return
            if until_idle and bare and self._sources.idle:
                self.stop()
                return
        self._wait(free, park=not (until_idle and self._hands))

    def _recover_and_promote(self) -> None:
        recovered = self._recovering.attempt(self._recover) if self._recovery != "none" else 0
        promoted = self._promoting.attempt(self._promote)
        if recovered or promoted:
            self._sources.rouse()

    def _recover(self) -> int:
        """How many wait again."""
        total = 0
        for _ in range(SLICES):
            if self._recovery == "reap":
                found = recover.reap(self._queue, SLICE)
                done = found
                event = Recovered(self._queue.name, "reap", found)
            else:
                swept = self._executor.sweep(self._queue, self._max_stalled, SLICE)
                found = len(swept.recovered)
                done = found + len(swept.dead)
                event = Recovered(self._queue.name, "stalled", found, tuple(swept.dead))
            total += found
            if done:
                self._emit(event)
            if done < SLICE:
                break
        return total

    def _promote(self) -> int:
        total = 0
        for _ in range(SLICES):
            promoted = recover.promote(self._queue, SLICE)
            total += promoted
            if promoted < SLICE:
                break
        return total

    def _take(self, claims: list[Claim], asked: float, asked_lease: float) -> None:
        taken = [Held(claim, asked_lease + self._lease / 1000) for claim in claims]
        for held in taken:
            self._hands.add(held)
        if self._executor.name == "native":
            # The script that claims knows nothing of lease epochs; without one a native sweep would never count.
            self._keeper.stamp(taken)
        for held in taken:
            if self._listener is not None:
                self._listener.catch_up(held, asked)
            self._pool.submit(held)

    def _wait(self, free: int, *, park: bool) -> None:
        """Until something may have come: a token on ``wake``, a job of ours that is done, or the next beat."""
        until = min(self._next_beat, self._sources.next_look) if free > 0 else self._next_beat
        seconds = max(SHORTEST_PARK_S, min(until - time.monotonic(), LONGEST_PARK_S))
        if free > 0 and park and self._sources.woken and not self._sources.at_ceiling:
            if time.monotonic() >= self._parking.next:
                if self._parking.attempt(lambda: self._queue.server.write("BLPOP", self._queue.keys.wake, seconds)):
                    self._sources.rouse()
                return
            seconds = min(seconds, max(SHORTEST_PARK_S, self._parking.next - time.monotonic()))
        try:
            self._finished.get(timeout=seconds)
        except queues.Empty:
            return
        self._sources.freed()
        if not park:
            self._sources.rouse()

    def _drain(self) -> None:
        while self._hands and (left := self._until - time.monotonic()) > 0:
            try:
                self._finished.get(timeout=min(left, 1.0))
            except queues.Empty:
                continue

    def _close(self) -> None:
        self._halted.set()
        self._keeper.stop()
        if self._listener is not None:
            self._listener.stop()
        self._pool.close()
        self._async.stop()

    # One job, on a thread of the pool.

    def _work(self, held: Held) -> None:
        claim = held.claim
        self._emit(Started(self._queue.name, claim.job, claim.token, claim.group))
        verdict = call(self._handler, Job(self._queue, held, self._executor, self._lose), held, self._async)
        if verdict is None or self._settler.settle(held, verdict):
            self._hands.drop(held)
        self._finished.put(None)

    # What the other parts tell us.

    def _lose(self, held: Held, why: str) -> None:
        if self._hands.lose(held):
            self._emit(Lost(self._queue.name, held.claim.job, held.claim.token, why))

    def _tell(self, held: Held, reason: str) -> None:
        if held.token.cancel(reason):
            self._emit(Signalled(self._queue.name, held.claim.job, held.claim.token, reason))

    def _emit(self, event: Event) -> None:
        with self._counting:
            match event:
                case Settled(outcome=outcome):
                    self._counts[outcome] += 1
                case Lost():
                    self._counts["lost"] += 1
                case Recovered(recovered=recovered):
                    self._counts["recovered"] += recovered
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001  # who listens must not stop the work
            _log.exception("%s: a listener failed at %r", self._queue.name, event)

    def _report(self) -> Report:
        numbers = {
            name: self._counts[name] for name in ("completed", "cancelled", "scheduled", "dead", "lost", "recovered")
        }
        return Report(self._queue.name, **numbers, abandoned=tuple(self.in_hand))

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
