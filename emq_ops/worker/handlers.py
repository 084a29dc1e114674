"""Calling handlers: plain functions on threads, async ones on one loop beside them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import queue
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from emq_ops.protocol.errors import BadInputError, StaleTokenError
from emq_ops.worker.cancel import Cancelled, JobCancelled
from emq_ops.worker.held_jobs import HeldJob
from emq_ops.worker.job import Job
from emq_ops.worker.settle import HandlerResult, failure_of, verdict_of

Handler = Callable[[Job], Any]
"""Takes a Job; returns None, bytes, text, anything that JSON can say, or Cancelled. May be async."""


def load_handler(name: str) -> Handler:
    """The callable that ``module:attribute`` names, the working directory included in the search. Raises
    BadInputError."""
    module_name, separator, attribute = name.partition(":")
    if not separator or not module_name or not attribute:
        raise BadInputError(f"'{name}' names no handler", fix="module:function, such as shop.jobs:handle")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
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


class AsyncLoop:
    """One event loop on a thread of its own, started when the first async handler needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """The result of `awaitable`; the calling thread waits for it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(self._loop,), name="emq-async", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop).result()

    def stop(self) -> None:
        """Ends the loop; what still runs on it is left where it is."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    if not asyncio.all_tasks(loop):
        loop.close()


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


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


class Pool:
    """Threads that are made when they are needed, at most `size`. They are daemons: a handler that hangs must not keep
    the process from ending."""

    def __init__(self, size: int, work: Callable[[HeldJob], None], name: str) -> None:
        self._size = size
        self._work = work
        self._name = name
        self._queue: queue.SimpleQueue[HeldJob | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._lock = threading.Lock()

    def submit(self, held: HeldJob) -> None:
        with self._lock:
            self._busy += 1
            if self._busy > len(self._threads) and len(self._threads) < self._size:
                thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._queue.put(held)

    def close(self) -> None:
        """Ends the threads that are not busy."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while (held := self._queue.get()) is not None:
            try:
                self._work(held)
            finally:
                with self._lock:
                    self._busy -= 1
