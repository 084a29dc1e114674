"""Settling what a handler left: complete it, or retry it; with its record, in one step, exactly once."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any

from emq_ops.protocol.errors import EmqError, OutcomeUnknownError, StaleTokenError, StateError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import settle
from emq_ops.protocol.transitions.settle import CompletionRecord, Settlement
from emq_ops.worker.cancel import Cancelled
from emq_ops.worker.combine import CombiningQueue
from emq_ops.worker.events import JobOutcome, Listener, Settled, Trouble
from emq_ops.worker.held_jobs import HeldJob
from emq_ops.worker.retrying_task import patience
from emq_ops.worker.settings import ConsumerSettings
from emq_ops.worker.verdicts import Delay, Failed, HandlerResult, Returned


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

    def settle(
        self, held: HeldJob, verdict: HandlerResult, *, doubt: bool = False, tell: Listener | None = None
    ) -> bool:
        """Settles, however long the server is away or refuses. False: given up, since the consumer was halted.
        `doubt`: this settlement was sent before, and its reply was lost. `tell`: hears of it in the place of `emit`."""
        held.settling = True
        failures = 0
        while True:
            try:
                event = self._once(held, verdict, doubt)
            except (StaleTokenError, StateError) as fault:
                self._lose(held, fault.what)
                return True
            except EmqError as fault:
                doubt = doubt or isinstance(fault, OutcomeUnknownError)
                failures += 1
                if not self._wait(held, fault, failures):
                    return False
                continue
            if event is not None:
                (tell or self._emit)(event)
            return True

    def settle_all(self, verdicts: Sequence[tuple[HeldJob, HandlerResult]], tell: Listener) -> list[HeldJob]:
        """Settles several in one flush, in their order; what did not come through goes on one by one, as `settle`.
        Returns those that were not settled, since the consumer was halted. `tell` hears of each that was."""
        for held, _ in verdicts:
            held.settling = True
        try:
            replies = settle.settle_many(self._queue, [self._settlement(*one) for one in verdicts])
        except EmqError as fault:
            replies = [fault] * len(verdicts)
        left = []
        for (held, verdict), reply in zip(verdicts, replies, strict=True):
            if isinstance(reply, StaleTokenError | StateError):
                self._lose(held, reply.what)
            elif isinstance(reply, EmqError):
                doubt = isinstance(reply, OutcomeUnknownError)
                if self._halted.is_set() or not self.settle(held, verdict, doubt=doubt, tell=tell):
                    left.append(held)
            elif (event := self._came(held, verdict, reply, doubt=False)) is not None:
                tell(event)
        return left

    def _wait(self, held: HeldJob, fault: EmqError, failures: int) -> bool:
        """Waits before the next attempt. False: the consumer was halted."""
        wait_ms = patience(fault).delay(failures)
        self._emit(Trouble(self._queue.name, f"settle {held.claim.job}", fault, wait_ms, failures - 1))
        return not self._halted.wait(wait_ms / 1000)

    def _once(self, held: HeldJob, verdict: HandlerResult, doubt: bool) -> Settled | None:
        """One attempt; None: the job was not ours any more. `doubt`: an earlier one may have been carried out."""
        if doubt and isinstance(verdict, Failed):
            claim = held.claim
            state, attempts = self._queue.server.read("HMGET", self._queue.keys.row(claim.job), "state", "attempts")
            if state is None or attempts != str(claim.token).encode("ascii"):
                self._lose(held, "it went on elsewhere")
                return None
            if state != b"active":  # else it is as it was: the retry was not carried out
                return self._settled(held, "dead" if state == b"dead" else "scheduled", verdict.error)
        return self._came(held, verdict, settle.settle_one(self._queue, self._settlement(held, verdict)), doubt=doubt)

    def _settlement(self, held: HeldJob, verdict: HandlerResult) -> Settlement:
        """What to send."""
        q, job, token = self._queue, held.claim.job, held.claim.token
        match verdict:
            case Delay(ms=ms):
                return settle.to_delay(q, job, token, ms, release=True)
            case Failed(error=error, last=last, delay=delay):
                wait = self._settings.backoff.delay(token) if delay is None else delay
                failure = settle.Failure(error, wait, 1 if last else self._settings.max_attempts)
                return settle.to_retry(
                    q, job, token, failure, release=True, record=self._record(held, "dead", error=error)
                )
            case Returned() | Cancelled():
                outcome, result = _completion(verdict)
                return settle.to_complete(
                    q, job, token, release=True, record=self._record(held, outcome, result=result), result=result
                )

    def _came(self, held: HeldJob, verdict: HandlerResult, reply: Any, *, doubt: bool) -> Settled | None:
        """What became of it, by the reply."""
        match verdict:
            case Delay():
                return self._settled(held, "delayed", None)
            case Failed(error=error):
                return self._settled(held, "dead" if reply is settle.Retried.DEAD else "scheduled", error)
            case Returned() | Cancelled():
                # Sent again after a lost reply, it finds no row where the first one was carried out.
                if reply or doubt:
                    return self._settled(held, *_completion(verdict))
                self._lose(held, "its row is gone")
                return None

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


def _completion(verdict: Returned | Cancelled) -> tuple[JobOutcome, bytes | None]:
    if isinstance(verdict, Cancelled):
        return "cancelled", f"cancelled:{verdict.reason}".encode("utf-8", "backslashreplace")
    return "completed", verdict.result
