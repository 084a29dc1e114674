"""Settling what a handler left: complete it, or retry it; with its record, in one step, exactly once."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emq_ops.protocol.errors import EmqError, OutcomeUnknownError, StaleTokenError, StateError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import settle
from emq_ops.protocol.transitions.settle import CompletionRecord
from emq_ops.worker.cancel import Cancelled
from emq_ops.worker.combine import CombiningQueue
from emq_ops.worker.events import JobOutcome, Listener, Settled, Trouble
from emq_ops.worker.held_jobs import HeldJob
from emq_ops.worker.retrying_task import patience
from emq_ops.worker.settings import ConsumerSettings

MAX_ERROR_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned. `result`: for the record, or None."""

    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised."""

    error: bytes


HandlerResult = Returned | Cancelled | Failed


def verdict_of(returned: Any) -> HandlerResult:
    """What a handler's return value means: bytes and text as they are, None is no result, anything else becomes JSON.
    A value that JSON can't say is a failure of the handler."""
    match returned:
        case None:
            return Returned()
        case Cancelled():
            return returned
        case bytes() | bytearray() | memoryview():
            return Returned(bytes(returned))
        case str():
            return Returned(returned.encode("utf-8", "backslashreplace"))
    try:
        return Returned(json.dumps(returned, ensure_ascii=False).encode("utf-8", "backslashreplace"))
    except (TypeError, ValueError) as fault:
        return Failed(f"the handler returned what can't be recorded: {fault}".encode("utf-8", "backslashreplace"))


def failure_of(fault: BaseException) -> Failed:
    """Returns an exception as an error text: its type and message, at most MAX_ERROR_BYTES; the type alone where it
    has no message, or one that can't be said."""
    name = str(type(fault).__name__)
    try:
        text = "".join(str(fault))  # a plain text, whatever subclass of one it is
    except BaseException:  # noqa: BLE001  # an exception of the user's may do anything when it is asked
        text = ""
    whole = f"{name}: {text}" if text else name
    return Failed(whole.encode("utf-8", "backslashreplace")[:MAX_ERROR_BYTES].decode("utf-8", "ignore").encode("utf-8"))


class Settler:
    """Thread-safe. `lose` is told of jobs that turn out not to be ours any more; `halted`: set when nothing more may be
    tried."""

    def __init__(
        self,
        queue: Queue,
        settings: ConsumerSettings,
        emit: Listener,
        lose: Callable[[HeldJob, str], None],
        halted: threading.Event,
    ) -> None:
        self._queue = CombiningQueue(queue)
        self._emit = emit
        self._lose = lose
        self._halted = halted
        self._settings = settings
        self._node = secrets.randbelow(1024) if settings.node is None else settings.node

    def settle(self, held: HeldJob, verdict: HandlerResult) -> bool:
        """Settles, however long the server is away or refuses. False: given up, since the consumer was halted."""
        held.settling = True
        failures, doubt = 0, False
        while True:
            try:
                event = self._once(held, verdict, doubt)
            except (StaleTokenError, StateError) as fault:
                self._lose(held, fault.what)
                return True
            except EmqError as fault:
                doubt = doubt or isinstance(fault, OutcomeUnknownError)
                failures += 1
                wait_ms = patience(fault).delay(failures)
                self._emit(Trouble(self._queue.name, f"settle {held.claim.job}", fault, wait_ms, failures - 1))
                if self._halted.wait(wait_ms / 1000):
                    return False
                continue
            if event is not None:
                self._emit(event)
            return True

    def _once(self, held: HeldJob, verdict: HandlerResult, doubt: bool) -> Settled | None:
        """One attempt; None: the job was not ours any more. `doubt`: an earlier one may have been carried out."""
        match verdict:
            case Returned(result=result):
                return self._complete(held, "completed", result, doubt)
            case Cancelled(reason=reason):
                return self._complete(
                    held, "cancelled", f"cancelled:{reason}".encode("utf-8", "backslashreplace"), doubt
                )
            case Failed(error=error):
                return self._retry(held, error, doubt)

    def _complete(self, held: HeldJob, outcome: JobOutcome, result: bytes | None, doubt: bool) -> Settled | None:
        claim = held.claim
        record = self._record(held, outcome, result=result)
        # Sent again after a lost reply, it finds no row where the first one was carried out: nothing happens twice.
        if settle.complete(self._queue, claim.job, claim.token, release=True, record=record) or doubt:
            return self._settled(held, outcome, result)
        self._lose(held, "its row is gone")
        return None

    def _retry(self, held: HeldJob, error: bytes, doubt: bool) -> Settled | None:
        claim = held.claim
        if doubt:
            state, attempts = self._queue.server.read("HMGET", self._queue.keys.row(claim.job), "state", "attempts")
            if state is None or attempts != str(claim.token).encode("ascii"):
                self._lose(held, "it went on elsewhere")
                return None
            if state != b"active":  # else it is as it was: the retry was not carried out
                return self._settled(held, "dead" if state == b"dead" else "scheduled", error)
        went = settle.retry(
            self._queue,
            claim.job,
            claim.token,
            settle.Failure(
                error, delay_ms=self._settings.backoff.delay(claim.token), max_attempts=self._settings.max_attempts
            ),
            release=True,
            record=self._record(held, "dead", error=error),
        )
        return self._settled(held, "dead" if went is settle.Retried.DEAD else "scheduled", error)

    def _record(
        self, held: HeldJob, outcome: JobOutcome, *, result: bytes | None = None, error: bytes | None = None
    ) -> CompletionRecord | None:
        if not self._settings.record:
            return None
        claim = held.claim
        return CompletionRecord(
            outcome,
            claim.claimed_ms,
            self._node,
            result=result,
            error=error,
            group=claim.group,
            stream=self._settings.stream,
        )

    def _settled(self, held: HeldJob, outcome: JobOutcome, detail: bytes | None) -> Settled:
        return Settled(self._queue.name, held.claim.job, held.claim.token, outcome, detail, held.took_ms)
