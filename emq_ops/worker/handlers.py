"""Calling handlers: plain functions on threads, async ones on one loop beside them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from emq_ops.protocol.errors import BadInputError, StaleTokenError
from emq_ops.worker.cancel import Cancelled, JobCancelled
from emq_ops.worker.held_jobs import HeldJob, is_running
from emq_ops.worker.job import Job
from emq_ops.worker.verdicts import HandlerResult, failure_of, verdict_of

LOOK_SECONDS = 0.5
"""How often a thread that waits for the event loop looks whether it lives."""
_log = logging.getLogger("emq_ops.worker")
Handler = Callable[[Job], Any]
"""Takes a Job; returns None, bytes, text, anything that JSON can say, or Cancelled. May be async."""


def load_handler(name: str) -> Callable[..., Any]:
    """The callable that ``module:attribute`` names, the working directory included in the search. Raises
    BadInputError."""
    module_name, separator, attribute = name.partition(":")
    if not separator or not module_name or not attribute:
        raise BadInputError(f"'{name}' names no handler", fix="module:function, such as shop.jobs:handle")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last: a file of this folder hides no module that is installed
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as fault:
        raise BadInputError(f"no handler '{name}': {fault}", fix="check the module's name and path") from fault
    except Exception as fault:  # a module of the user's may raise anything when it is imported
        text = f"{type(fault).__name__}: {fault}"
        raise BadInputError(f"'{module_name}' can't be imported: {text}", fix="mend the module") from fault
    if not callable(found):
        raise BadInputError(f"'{name}' can't be called", fix="name a function")
    return found  # type: ignore[no-any-return]  # callable is all that can be known


class ThreadEndedError(Exception):
    """A handler ended the thread that worked it."""


class AsyncLoop:
    """One event loop on a thread of its own, started when the first async handler needs it, and anew when a handler
    ended it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Returns the result of `awaitable`; the calling thread waits for it. Raises what it raises, and
        ThreadEndedError where the loop ended under it."""
        loop, thread = self._running()
        waiting = asyncio.run_coroutine_threadsafe(_outcome(awaitable), loop)
        while True:
            try:
                returned, fault = waiting.result(LOOK_SECONDS)
                break
            except TimeoutError:
                if not is_running(thread):
                    raise ThreadEndedError("the handler ended the event loop's thread") from None
        if fault is not None:
            raise fault
        return returned

    def _running(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        with self._lock:
            if self._loop is None or self._thread is None or not is_running(self._thread):
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="emq-async", daemon=True)
                self._thread.start()
            return self._loop, self._thread

    def stop(self) -> None:
        """Ends the loop; what still runs on it is left where it is."""
        with self._lock:
            self._ended.set()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._ended.is_set():
            try:
                loop.run_forever()  # ends early where a handler stops it, or a task of its own raises SystemExit
            except BaseException as fault:  # noqa: BLE001  # told to the handler that awaits the task
                _log.debug("the event loop goes on after %r", fault)
        if not asyncio.all_tasks(loop):
            loop.close()


async def _outcome(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """What came of it, as a value: some exceptions would end the loop, others be taken for a cancellation of ours."""
    try:
        return await awaitable, None
    except BaseException as fault:  # noqa: BLE001  # raised again in the handler's thread
        return None, fault


def call(handler: Handler, job: Job, held: HeldJob, loop: AsyncLoop) -> HandlerResult | None:
    """Runs the handler. None: it stopped because the job is not ours any more, so nothing is to be settled."""
    try:
        returned = handler(job)
        if inspect.isawaitable(returned):
            returned = loop.run(returned)
        verdict = verdict_of(returned)
    except JobCancelled as stopped:
        verdict = Cancelled(stopped.reason)
    except StaleTokenError as fault:
        if held.lost:
            return None
        verdict = failure_of(fault)
    except BaseException as fault:  # noqa: BLE001  # whatever a handler raises is its job's error, never our crash
        verdict = failure_of(fault)
    if isinstance(verdict, Cancelled) and held.token.lost:
        return None
    return verdict


class Runnable(Protocol):
    """What a thread of the pool works at: a job in hand, or a batch of them."""

    thread: threading.Thread | None
    ended: bool


W = TypeVar("W", bound=Runnable)


class HandlerPool(Generic[W]):
    """Threads that are made when they are needed, at most `size`. They are daemons: a handler that hangs must not keep
    the process from ending."""

    def __init__(self, size: int, work: Callable[[W], None], name: str) -> None:
        self._size = size
        self._work = work
        self._name = name
        self._queue: queue.SimpleQueue[W | None] = queue.SimpleQueue()
        self._threads: dict[threading.Thread, W | None] = {}
        self._busy = 0
        self._next_look = 0.0
        self._lock = threading.Lock()

    def submit(self, held: W) -> None:
        with self._lock:
            self._busy += 1
            self._fill()
        self._queue.put(held)

    def ended(self) -> list[W]:
        """Returns the work whose threads are gone, each once; other threads take their places. Looks again only after
        LOOK_SECONDS: it asks the operating system."""
        if time.monotonic() < self._next_look:
            return []
        self._next_look = time.monotonic() + LOOK_SECONDS
        with self._lock:
            gone = [thread for thread in self._threads if not is_running(thread)]
            found = [held for thread in gone if (held := self._threads.pop(thread)) is not None]
            self._busy -= len(found)
            self._fill()
        return found

    def close(self) -> None:
        """Ends the threads that are not busy."""
        for _ in self._threads:
            self._queue.put(None)

    def _fill(self) -> None:
        while len(self._threads) < min(self._busy, self._size):
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads[thread] = None
            thread.start()

    def _run(self) -> None:
        thread = threading.current_thread()
        while (held := self._queue.get()) is not None:
            held.thread = thread
            with self._lock:
                self._threads[thread] = held
            try:
                self._work(held)
            except BaseException:  # noqa: BLE001  # whatever it was, the thread goes on
                _log.exception("%s: let go of", held)
            finally:
                with self._lock:
                    self._threads[thread] = None
                    self._busy -= 1
