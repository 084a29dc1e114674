"""From cues to runs: one run of a task at a time, idle tasks without a pass, failing ones with a back-off."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import replace

from emq_ops.daemon import clock
from emq_ops.daemon.backoff import retry_ms
from emq_ops.daemon.digest import PerMinute
from emq_ops.daemon.events import TaskFailed, TaskLate
from emq_ops.daemon.pools import Leases, Sizes, ThreadPool
from emq_ops.daemon.probe import Probe
from emq_ops.daemon.progress import ProgressBook
from emq_ops.daemon.tasks import PassTask
from emq_ops.daemon.timers import Cue, ordered
from emq_ops.daemon.turns import Turns
from emq_ops.daemon.work import PassRunner
from emq_ops.ledger.pending_runs import IdleBook
from emq_ops.passes.events import Emit
from emq_ops.passes.frame.frame import PassOutcome
from emq_ops.protocol.errors import DeadlineError, EmqError, FenceError, SlotMovingError, code_of

Key = tuple[str, str]
LATE_MS = 5_000
"""A run that begins later than this is reported."""
MOST_LATE = 60
"""So many a minute; where there are more, the alert ``behind`` says how many."""
PUT_OFF_SECONDS = 1.0


class Dispatcher:
    """Holds what is due and what runs."""

    def __init__(
        self, runner: PassRunner, leases: Leases, book: ProgressBook, idle: IdleBook, emit: Emit, sizes: Sizes
    ) -> None:
        self.runner, self.leases, self.book, self.idle, self.emit = runner, leases, book, idle, emit
        self.probe = Probe(runner.services.server)
        self._quick, self._slow = ThreadPool("pass", sizes.threads), ThreadPool("store", sizes.archive_threads)
        self._turns = Turns(self._slow, sizes.archive_threads)
        self.backoff_ms = sizes.backoff_ms
        self._fenced: dict[Key, int] = {}
        self._put_off_until: dict[Key, float] = {}
        self._tasks: dict[Key, PassTask] = {}
        self._cues: queue.SimpleQueue[Cue] = queue.SimpleQueue()
        self._pending: dict[Key, Cue] = {}
        self._retry_at: dict[Key, float] = {}
        self._running: set[Key] = set()
        self._due_since: dict[Key, float] = {}  # until the run begins
        self._told_late = PerMinute(MOST_LATE)
        self._lock = threading.Lock()
        self._ending = threading.Event()

    def cue(self, cue: Cue) -> None:
        """A task is due. Returns at once."""
        self._cues.put(cue)

    def keep(self, tasks: dict[Key, PassTask]) -> None:
        """Only these tasks are ours now: what is due of the others is dropped, what is due of these and not begun takes
        the new policy, also where its cue was given before and is taken up later."""
        with self._lock:
            self._tasks = tasks
            for key in list(self._pending):
                task = tasks.get(key)
                if task is None:
                    del self._pending[key]
                    self._retry_at.pop(key, None)
                    self._due_since.pop(key, None)
                else:
                    self._pending[key] = replace(self._pending[key], task=task)

    def turn(self) -> None:
        """One round: starts what can be started. Raises nothing but faults of our own."""
        while not self._cues.empty():  # nobody else takes from it
            self._due(self._cues.get_nowait())
        now = clock.steady()
        with self._lock:
            self._put_off_until = {key: at for key, at in self._put_off_until.items() if at > now}
            begins = {**self._retry_at, **self._put_off_until}
            ready = [
                cue for key, cue in self._pending.items() if key not in self._running and begins.get(key, 0.0) <= now
            ]
        ready = [cue for cue in ready if self.leases.ready(cue.task.queue)]
        self._look([cue for cue in ready if cue.task.key not in self._turns.waiting], now)
        for cue, since in self._turns.take({cue.task.key: cue for cue in ready}):
            self._start(cue, since)

    def _look(self, ready: list[Cue], now: float) -> None:
        """Starts those that have something to do, or has them wait for their turn."""
        tasks = [cue.task for cue in ready if cue.task.key not in self._retry_at]
        with self._lock:
            since = [self._due_since.get(task.key, now) for task in tasks if not task.stores]
        self._turns.looked_at(now - min(since, default=now))
        idle = self._idle(tasks) if tasks else set()
        for cue in ordered(ready):
            if cue.task.queue in self.probe.unanswered:
                self._put_off(cue)  # its pass would wait for the node and keep a thread from the others
            elif cue.task.key in idle:
                self._note_late(cue)
                self._drop(cue)
                self.book.idled(cue)
                with contextlib.suppress(EmqError):  # counted on, and written by the next flush
                    self.idle.note(cue.task.kind)
            elif cue.task.stores:
                self._turns.waiting[cue.task.key] = now
            else:
                self._start(cue, clock.steady())

    def _idle(self, tasks: list[PassTask]) -> set[Key]:
        """Those that have nothing to do. What can't be told is not idle, nor is a run with something to settle before
        (a trim with a plan's list), which is read before the queues are looked at, so that it is no later one."""
        ledger, limits, unsure = self.runner.services.state, {}, set()
        passes = {task.what.name: task.what.loaded for task in tasks}
        for name, work in passes.items():
            try:
                limits[name] = work.limits(ledger, [task.queue for task in tasks if task.what.name == name])
            except EmqError:
                unsure.add(name)
        try:
            idle = self.probe.idle([task for task in tasks if task.what.name not in unsure])
        except EmqError:
            return set()
        for name, work in passes.items():
            still = [task for task in tasks if task.what.name == name and task.key in idle]
            try:
                due = work.settle_idle(ledger, limits[name], [task.queue for task in still]) if still else set()
            except EmqError:
                due = {task.queue for task in still}
            idle -= {task.key for task in still if task.queue in due}
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
            self._due_since.setdefault(cue.task.key, clock.steady() - cue.late_ms / 1000)

    def due_for(self) -> dict[Key, float]:
        """For how many seconds each run has been due that could begin and did not. What waits after a fault, for its
        lease or for its server is none of them."""
        now = clock.steady()
        with self._lock:
            excused = self._retry_at.keys() | self._put_off_until.keys()
            found = {key: now - since for key, since in self._due_since.items() if key not in excused}
        return {key: age for key, age in found.items() if self.leases.ready(key[0])}

    def _note_late(self, cue: Cue) -> None:
        if cue.late_ms >= LATE_MS and cue.task.key not in self._retry_at and self._told_late.one_more():
            self.emit(TaskLate(cue.task.queue, task=cue.task.text, late_ms=cue.late_ms, skipped=cue.skipped))

    def _drop(self, cue: Cue) -> None:
        with self._lock:
            if self._pending.get(cue.task.key) is cue:
                del self._pending[cue.task.key]
                self._due_since.pop(cue.task.key, None)

    def _start(self, cue: Cue, since: float) -> None:
        """`since`: when it was known to have something to do."""
        with self._lock:
            if self._pending.get(cue.task.key) is not cue:
                return
            del self._pending[cue.task.key]
            self._running.add(cue.task.key)
        pool = self._slow if cue.task.stores else self._quick
        pool.submit(lambda: self._run(cue, since))

    def _run(self, cue: Cue, since: float) -> None:
        """One run of a cue that waits for a thread since `since`."""
        task = cue.task
        try:
            with self._lock:
                now = self._tasks.get(task.key)
                self._due_since.pop(task.key, None)
            if now is None:
                return  # it waited for a thread, and is ours no more
            late_ms = cue.late_ms + int((clock.steady() - since) * 1000)
            task, cue = now, replace(cue, task=now, late_ms=late_ms)
            if not self.leases.ready(task.queue) or self._ending.is_set():
                self._again(cue)
                return
            self._note_late(cue)
            self.book.begun(cue)
            try:
                done = self._pass(task)
            except FenceError as fault:
                self._refused(cue, fault)
                return
            except SlotMovingError:
                self._put_off(cue)  # no fault of the task; it goes on when the move is over
                return
            except EmqError as fault:
                if self._ending.is_set() and isinstance(fault, DeadlineError):
                    self._again(cue)  # cut short by the end of the process, which is no fault of the task
                else:
                    self._failed(cue, str(fault), code_of(fault))
                return
            except Exception as fault:  # noqa: BLE001 - one task's fault must not end the daemon
                self._failed(cue, f"fault of emq-ops itself: {type(fault).__name__}: {fault}", "internal")
                return
            with self._lock:
                self._retry_at.pop(task.key, None)
                self._fenced.pop(task.key, None)
            with contextlib.suppress(EmqError):  # the mark stays to be written
                self.book.ended(cue, None, idle=done.idle)
            if done.idle:
                with contextlib.suppress(EmqError):
                    self.idle.note(task.kind)
        finally:
            with self._lock:
                self._running.discard(task.key)

    def _pass(self, task: PassTask) -> PassOutcome:
        before = self.probe.before(task)
        done = self.runner.run(task, self.leases.lease_of(task.queue))
        self.probe.ended(task, before, done)
        return done

    def _put_off(self, cue: Cue) -> None:
        with self._lock:
            self._put_off_until[cue.task.key] = clock.steady() + PUT_OFF_SECONDS
        self._again(cue)

    def _refused(self, cue: Cue, fault: FenceError) -> None:
        """The lease was lost: the run is due under the next one. Where that is lost too, it is a failure like others,
        and waits as they do."""
        with self._lock:
            times = self._fenced[cue.task.key] = self._fenced.get(cue.task.key, 0) + 1
        if times > 1:
            self._failed(cue, str(fault), code_of(fault))
        else:
            self._again(cue)

    def _failed(self, cue: Cue, error: str, code: str) -> None:
        failures = 1
        with contextlib.suppress(EmqError):
            failures = self.book.ended(cue, error, idle=False)
        failures = max(failures, self.book.mark(cue.task).failures)
        delay = retry_ms(cue.task, failures, self.backoff_ms)
        with self._lock:
            self._retry_at[cue.task.key] = clock.steady() + delay / 1000
        self._again(cue)
        told = TaskFailed(cue.task.queue, task=cue.task.text, error=error, failures=failures, retry_ms=delay, code=code)
        self.emit(told)

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
