"""The workers of `operations.json`, as the consumers that they are."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from emq_ops.protocol.queue import Queue
from emq_ops.worker.backoff import Backoff
from emq_ops.worker.batch import BatchConsumer, BatchSettings
from emq_ops.worker.events import Settled, WorkerEvent
from emq_ops.worker.job import Job
from emq_ops.worker.settings import ConsumerSettings
from emq_ops.worker.stream_consumer import StreamConsumer
from emq_ops.worker.stream_settings import StreamEntry, StreamSettings
from emq_ops.worker.verdicts import Retry

Args = dict[str, Any]
WINDOW_MS = 200
_PAIR = re.compile(r'"([^"]*)"\s*=>\s*(:\w+|\{[^}]*\}|[^,}]+)')
_TOLD = {"completed": "completed", "delayed": "delayed"}


class _HandlerError(Exception):
    """What a recorded handler raised, threw or ended with."""


def _answer(verdicts: Args) -> Any:
    """What the handler returns. An expression of the reference's language is read as far as it is a map of atoms."""
    if "raise" in verdicts or "throw" in verdicts:
        raise _HandlerError(verdicts.get("raise", verdicts.get("throw")))
    expression = verdicts.get("answer")
    if expression is None:
        return verdicts
    if expression.startswith("exit("):
        raise _HandlerError(expression)
    if not expression.startswith("%{"):
        return expression
    return {job: _term(term) for job, term in _PAIR.findall(expression)}


def _term(term: str) -> Any:
    if term == ":ok":
        return "ok"
    if found := re.fullmatch(r"\{:delay, (\d+)\}", term):
        return {"delay": int(found[1])}
    if found := re.fullmatch(r'\{:error, "(.*)"\}', term):
        return {"error": found[1]}
    return term


def batch_consume(q: Queue, args: Args) -> list[Any]:
    """One window: what was claimed, and what was told of each that was settled."""
    claimed: list[list[Any]] = []
    told: list[list[bytes]] = []

    def handle(jobs: Sequence[Job]) -> Any:
        consumer.stop(60_000)  # what the handler has is settled, and nothing more is claimed
        claimed.extend([job.id.encode("ascii"), job.payload, job.attempts] for job in jobs)
        return _answer(args["verdicts"])

    def tell(event: WorkerEvent) -> None:
        if isinstance(event, Settled):
            told.append([_TOLD.get(event.outcome, "failed").encode("ascii"), event.job.encode("ascii")])

    delay = max(args["retry_delay_ms"], 1)
    settings = ConsumerSettings(
        concurrency=1,
        recovery="none",
        promote=False,
        cancel=False,
        record=False,
        keep=False,
        claim=("flat",),
        lease=args["lease_ms"],
        max_attempts=args["max_attempts"],
        backoff=Backoff(base=delay, longest=delay, jitter=0),
    )
    batch = BatchSettings(size=1_000, least=args["min_size"], wait=WINDOW_MS)
    consumer = BatchConsumer(q, handle, settings, batch=batch, on_event=tell)
    consumer.run(until_idle=True)
    return [claimed, told]


STILL_SECONDS = 0.35
"""A stream's consumer is stopped when it had nothing to handle for so long."""


def stream_consume(q: Queue, args: Args) -> list[Any]:
    """The entries that were handled, until there were so many as recorded, or none came any more."""
    handled: list[list[Any]] = []
    verdicts, last = args["verdicts"], [time.monotonic()]

    def handle(entry: StreamEntry) -> Retry | None:
        last[0] = time.monotonic()
        handled.append([entry.id.encode("ascii"), entry.fields, entry.attempts])
        if len(handled) >= args["deliveries"]:
            done.set()
        verdict = verdicts.get(entry.id, verdicts.get("*", "ok"))
        if verdict == "ok":
            return None
        if "raise" in verdict:
            raise _HandlerError(verdict["raise"])
        return Retry(verdict["error"])

    done = threading.Event()
    settings = StreamSettings(
        group=args["group"],
        consumer=args["consumer"],
        start=args["start"],
        min_idle=args["min_idle_ms"],
        count=args["count"],
        beat=50,
        attempts=None,
    )
    consumer = StreamConsumer(q, args["stream"], handle, settings, on_event=lambda _: None)
    thread = threading.Thread(target=consumer.run, daemon=True)
    thread.start()
    while not done.wait(0.02) and time.monotonic() - last[0] < STILL_SECONDS:
        pass
    consumer.stop()
    thread.join()
    return handled


CALLS: dict[str, Callable[[Queue, Args], Any]] = {"batch_consume": batch_consume, "stream_consume": stream_consume}
"""As those of `emq_ops.protocol.conformance`, for what stands above it."""
