"""What a handler left behind: what it returned or raised, as what is to be settled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import not_negative
from emq_ops.worker.cancel import Cancelled

MAX_ERROR_BYTES = 4_096
MISSING = b"missing verdict"
"""The error of a job that a batch's handler left out, in the words of the reference."""


@dataclass(frozen=True, slots=True)
class Delay:
    """A handler's verdict: back on the schedule for `ms`, without an attempt."""

    ms: int

    def __post_init__(self) -> None:
        not_negative(self.ms, "delay")


@dataclass(frozen=True, slots=True)
class Retry:
    """A handler's verdict: it failed, as if the handler had raised. `delay`: how long it waits (ms), unless the
    consumer's backoff says."""

    error: bytes | str
    delay: int | None = None


@dataclass(frozen=True, slots=True)
class Dead:
    """A handler's verdict: it failed, and no further attempt would help."""

    error: bytes | str


@dataclass(frozen=True, slots=True)
class Ok:
    """A batch handler's verdict, where there is a result to record."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned. `result`: for the record, or None."""

    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised, or said so. `last`: there is no further attempt; `delay`: see Retry."""

    error: bytes
    last: bool = False
    delay: int | None = None


HandlerResult = Returned | Cancelled | Failed | Delay


def verdict_of(returned: Any) -> HandlerResult:
    """What a handler's return value means: bytes and text as they are, None is no result, a verdict is one, anything
    else becomes JSON. A value that JSON can't say is a failure of the handler."""
    match returned:
        case None:
            return Returned()
        case Cancelled() | Delay():
            return returned
        case Retry(error=error, delay=delay):
            return Failed(_text(error), delay=delay)
        case Dead(error=error):
            return Failed(_text(error), last=True)
        case Ok(result=result):
            return verdict_of(result)
        case bytes() | bytearray() | memoryview():
            return Returned(bytes(returned))
        case str():
            return Returned(returned.encode("utf-8", "backslashreplace"))
    try:
        return Returned(json.dumps(returned, ensure_ascii=False).encode("utf-8", "backslashreplace"))
    except (TypeError, ValueError) as fault:
        return Failed(f"the handler returned what can't be recorded: {fault}".encode("utf-8", "backslashreplace"))


def batch_verdict(verdict: Any) -> HandlerResult:
    """What a batch handler said of one job: ``"ok"``, Ok, Delay, Retry, Dead, Cancelled, or ``{"delay": ms}``,
    ``{"error": text}``, ``{"dead": text}``. Anything else is a failure of that job alone."""
    match verdict:
        case "ok":
            return Returned()
        case Ok() | Delay() | Retry() | Dead() | Cancelled():
            return verdict_of(verdict)
        case {"delay": int() as ms, **rest} if not rest:
            try:
                return Delay(ms)
            except BadInputError:
                return _unknown(verdict)
        case {"error": bytes() | str() as error, **rest} if not rest:
            return Failed(_text(error))
        case {"dead": bytes() | str() as error, **rest} if not rest:
            return Failed(_text(error), last=True)
    return _unknown(verdict)


def batch_verdicts(returned: Any, jobs: list[str]) -> dict[str, HandlerResult]:
    """What a batch handler's return value means for each of `jobs`. Those that it leaves out have failed; no mapping
    fails them all; strangers are passed over."""
    if not isinstance(returned, Mapping):
        failed = Failed(f"the handler returned no mapping of verdicts, but {_shown(returned)}".encode())
        return dict.fromkeys(jobs, failed)
    return {job: batch_verdict(returned[job]) if job in returned else Failed(MISSING) for job in jobs}


def _unknown(verdict: Any) -> Failed:
    return Failed(f"unknown verdict: {_shown(verdict)}".encode())


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # a value of the user's may do anything when it is asked
        text = type(value).__name__
    return text[:200].encode("utf-8", "backslashreplace").decode("utf-8")


def _text(error: bytes | str) -> bytes:
    """An error text of at most MAX_ERROR_BYTES; text is cut between characters."""
    if isinstance(error, bytes):
        return error[:MAX_ERROR_BYTES]
    whole = str(error).encode("utf-8", "backslashreplace")
    return whole[:MAX_ERROR_BYTES].decode("utf-8", "ignore").encode("utf-8")


def failure_of(fault: BaseException) -> Failed:
    """Returns an exception as an error text: its type and message, at most MAX_ERROR_BYTES; the type alone where it
    has no message, or one that can't be said."""
    name = str(type(fault).__name__)
    try:
        text = "".join(str(fault))  # a plain text, whatever subclass of one it is
    except BaseException:  # noqa: BLE001  # an exception of the user's may do anything when it is asked
        text = ""
    return Failed(_text(f"{name}: {text}" if text else name))
