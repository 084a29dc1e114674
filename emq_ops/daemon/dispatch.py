"""From cues to runs: one run of a task at a time, idle tasks without a pass, failing ones with a back-off."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import replace

from emq_ops.daemon import clock
from emq_ops.daemon.backoff import retry_ms
from emq_ops.daemon.book import Book
from emq_ops.daemon.events import TaskFailed, TaskLate
from emq_ops.daemon.pools import Pool
from emq_ops.daemon.probe import Probe
from emq_ops.daemon.tasks import DEAD, Task
from emq_ops.daemon.timers import Cue, ordered
from emq_ops.daemon.work import Bounded, Done, Worker
from emq_ops.ledger.runs import IdleBook
from emq_ops.passes.events import Emit
from emq_ops.protocol.errors import DeadlineError, EmqError, FenceError, SlotMovingError
from emq_ops.protocol.fence import Fence

Key = tuple[str, str]
PUT_OFF_SECONDS = 1.0
LATE_MS = 5_000
"""A run that begins later than this is reported."""


class Dispatcher:
    """Holds what is due and what runs. `fence_of` returns the lease of a queue, None while we do not lead it; `lost` is
    told of one under which a pass was fenced off; `lease_ms_of` returns a queue's longest lease; `away` whether its
    server does not answer."""

    def __init__(
        self,
        worker: Worker,
        probe: Probe,
        book: Book,
        idle: IdleBook,
        emit: Emit,
        *,
        fence_of: Callable[[str], Fence | None],
        lost: Callable[[Fence], None],
        lease_ms_of: Callable[[str], int],
        away: Callable[[str], bool],
        threads: int,
        archive_threads: int,
        backoff_ms: int,
    ) -> None:
        self.worker, self.probe, self.book, self.idle, self.emit = worker, probe, book, idle, emit
        self._fence_of, self._lost, self._lease_ms_of, self._away = fence_of, lost, lease_ms_of, away
        self._quick, self._slow = Pool("pass", threads), Pool("store", archive_threads)
        self.backoff_ms = backoff_ms
        self._tasks: dict[Key, Task] = {}
        self._cues: queue.SimpleQueue[Cue] = queue.SimpleQueue()
        self._pending: dict[Key, Cue] = {}
        self._retry_at: dict[Key, float] = {}
        self._put_off_until: dict[Key, float] = {}
        self._running: set[Key] = set()
        self._lock = threading.Lock()
        self._ending = threading.Event()

    def cue(self, cue: Cue) -> None:
        """A task is due. Returns at once."""
        self._cues.put(cue)

    def keep(self, tasks: dict[Key, Task]) -> None:
        """Only these tasks are ours now: what is due of the others is dropped, what is due of these and not begun takes
        the new policy, also where its cue was given before and is taken up later."""
        with self._lock:
            self._tasks = tasks
            for key in list(self._pending):
                task = tasks.get(key)
                if task is None:
                    del self._pending[key]
                    self._retry_at.pop(key, None)
                else:
                    self._pending[key] = replace(self._pending[key], task=task)

    def turn(self) -> None:
        """One round: starts what can be started. Raises nothing but faults of our own."""
        while True:
            try:
                self._due(self._cues.get_nowait())
            except queue.Empty:
                break
        now = clock.steady()
        with self._lock:
            self._put_off_until = {key: at for key, at in self._put_off_until.items() if at > now}
            begins = {**self._retry_at, **self._put_off_until}
            ready = [
                cue for key, cue in self._pending.items() if key not in self._running and begins.get(key, 0.0) <= now
            ]
        ready = [cue for cue in ready if self._fence_of(cue.task.queue) is not None and not self._away(cue.task.queue)]
        if not ready:
            return
        idle = self._idle([cue.task for cue in ready if cue.task.key not in self._retry_at])
        for cue in ordered(ready):
            if cue.task.queue in self.probe.unanswered:
                self._put_off(cue)  # its pass would wait for the node and keep a thread from the others
            elif cue.task.key in idle:
                self._note_late(cue)
                self._drop(cue)
                self.book.idled(cue)
                with contextlib.suppress(EmqError):  # counted on, and written by the next flush
                    self.idle.note(cue.task.name.split(":")[0])
            else:
                self._start(cue)

    def _idle(self, tasks: list[Task]) -> set[Key]:
        """Those that have nothing to do. What can't be told is not idle; nor is a trim whose list (the one that bounds
        the first trim after an apply) can't be spent: it is read before the queue is looked at, so
        that it is no later one."""
        trims = [task.queue for task in tasks if task.name == DEAD]
        idle: set[Key] = set()
        bounded: Bounded | None = None
        with contextlib.suppress(EmqError):
            bounded = self.worker.bounded(trims)
        with contextlib.suppress(EmqError):
            idle = self.probe.idle(tasks)
        if bounded is None:
            return {key for key in idle if key[1] != DEAD}
        idle -= {(queue, DEAD) for queue in bounded.held}
        spent = [bound for bound in bounded.bounds if (bound[0], DEAD) in idle]
        try:
            self.worker.spend(spent)
        except EmqError:
            idle -= {(queue, DEAD) for queue, _ in spent}
        return idle

    def _due(self, cue: Cue) -> None:
        with self._lock:
            task = self._tasks.get(cue.task.key)
            if task is None:
                return
            cue = replace(cue, task=task)
            waiting = self._pending.get(cue.task.key)
            if waiting is not None:
                # One run for both: as late as the first, and it sees to the instant of the second.
                late = max(waiting.late_ms, cue.late_ms)
                cue = replace(cue, late_ms=late, skipped=cue.skipped + waiting.skipped + 1)
            self._pending[cue.task.key] = cue

    def _note_late(self, cue: Cue) -> None:
        if cue.late_ms >= LATE_MS and cue.task.key not in self._retry_at:
            self.emit(TaskLate(cue.task.queue, task=cue.task.text, late_ms=cue.late_ms, skipped=cue.skipped))

    def _drop(self, cue: Cue) -> None:
        with self._lock:
            if self._pending.get(cue.task.key) is cue:
                del self._pending[cue.task.key]

    def _start(self, cue: Cue) -> None:
        with self._lock:
            if self._pending.get(cue.task.key) is not cue:
                return
            del self._pending[cue.task.key]
            self._running.add(cue.task.key)
        pool, since = self._slow if cue.task.stores else self._quick, clock.steady()
        pool.submit(lambda: self._run(cue, since))

    def _run(self, cue: Cue, since: float) -> None:
        """One run of a cue that waits for a thread since `since`."""
        task = cue.task
        try:
            with self._lock:
                now = self._tasks.get(task.key)
            if now is None:
                return  # it waited for a thread, and is ours no more
            late_ms = cue.late_ms + int((clock.steady() - since) * 1000)
            task, cue = now, replace(cue, task=now, late_ms=late_ms)
            fence = self._fence_of(task.queue)
            if fence is None or self._ending.is_set():
                self._again(cue)
                return
            self._note_late(cue)
            self.book.begun(cue)
            try:
                done = self._pass(task, fence)
            except FenceError:
                self._lost(fence)
                self._again(cue)  # under the next lease, if it is ours
                return
            except SlotMovingError:
                self._put_off(cue)  # no fault of the task; it goes on when the move is over
                return
            except EmqError as fault:
                if self._ending.is_set() and isinstance(fault, DeadlineError):
                    self._again(cue)  # cut short by the end of the process, which is no fault of the task
                else:
                    self._failed(cue, str(fault))
                return
            except Exception as fault:  # noqa: BLE001 - one task's fault must not end the daemon
                self._failed(cue, f"fault of emq-ops itself: {type(fault).__name__}: {fault}")
                return
            with self._lock:
                self._retry_at.pop(task.key, None)
            with contextlib.suppress(EmqError):  # the mark stays to be written
                self.book.ended(cue, None, idle=done.idle)
            if done.idle:
                with contextlib.suppress(EmqError):
                    self.idle.note(task.name.split(":")[0])
        finally:
            with self._lock:
                self._running.discard(task.key)

    def _pass(self, task: Task, fence: Fence) -> Done:
        if task.stream:
            before = self.probe.facts(task)
            self.probe.folded(task, None, None)
            done = self.worker.run(task, fence, lease_ms=self._lease_ms_of(task.queue))
            self.probe.folded(task, before, done.report)  # type: ignore[arg-type]  # a stream's report
            return done
        done = self.worker.run(task, fence, lease_ms=self._lease_ms_of(task.queue))
        if done.sight is not None:
            whole = not getattr(done.report, "more", False) and getattr(done.report, "status", "") == "done"
            self.probe.swept(task.queue, done.sight if whole else None)
        return done

    def _failed(self, cue: Cue, error: str) -> None:
        failures = 1
        with contextlib.suppress(EmqError):
            failures = self.book.ended(cue, error, idle=False)
        failures = max(failures, self.book.mark(cue.task).failures)
        delay = retry_ms(cue.task, failures, self.backoff_ms)
        with self._lock:
            self._retry_at[cue.task.key] = clock.steady() + delay / 1000
        self._again(cue)
        self.emit(TaskFailed(cue.task.queue, task=cue.task.text, error=error, failures=failures, retry_ms=delay))

    def _put_off(self, cue: Cue) -> None:
        with self._lock:
            self._put_off_until[cue.task.key] = clock.steady() + PUT_OFF_SECONDS
        self._again(cue)

    def _again(self, cue: Cue) -> None:
        with self._lock:
            self._pending.setdefault(cue.task.key, cue)

    def occupy(self, key: Key) -> bool:
        """Reserves a task for a run from elsewhere (a command's request); False while it runs."""
        with self._lock:
            if key in self._running:
                return False
            self._running.add(key)
            return True

    def lend(self, key: Key, job: Callable[[], None], *, stores: bool) -> None:
        """Runs `job` for the reserved task `key`."""

        def run() -> None:
            try:
                job()
            finally:
                with self._lock:
                    self._running.discard(key)

        (self._slow if stores else self._quick).submit(run)

    @property
    def running(self) -> int:
        """How many runs are in hand."""
        return self._quick.busy + self._slow.busy

    @property
    def waiting(self) -> int:
        """How many tasks are due and not begun."""
        with self._lock:
            return len(self._pending)

    def end(self) -> None:
        """Nothing that waits is begun any more."""
        self._ending.set()

    def drain(self, seconds: float) -> bool:
        """Waits for the runs in hand; False when the time ran out first."""
        until = clock.steady() + seconds
        first = self._quick.drain(max(0.0, until - clock.steady()))
        return self._slow.drain(max(0.0, until - clock.steady())) and first
