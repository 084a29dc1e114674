"""Handlers for worker processes of tests: what a job does stands in its payload."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from emq_ops.worker import Cancelled, Delay, Job, Retry


def obedient(job: Job) -> Any:
    """Payload ``ok``, ``fail``, ``flaky`` (fails at the first attempt), ``cancel``, or ``sleep <seconds>``."""
    word, _, rest = job.payload.decode().partition(" ")
    match word:
        case "fail":
            raise RuntimeError("told to fail")
        case "flaky" if job.attempts == 1:
            raise RuntimeError("not yet")
        case "cancel":
            return Cancelled("told to stop")
        case "sleep":
            time.sleep(float(rest))
    return f"done at attempt {job.attempts}"


def all_ok(batch: Sequence[Job]) -> dict[str, str]:
    """Every job of a batch is done."""
    return {job.id: "ok" for job in batch}


def uneven(batch: Sequence[Job]) -> dict[str, Any]:
    """As the payload says: ``ok``, or ``flaky``, which is put off, fails, or is left out before it is done."""
    time.sleep(0.01)
    told: dict[str, Any] = {}
    for job in batch:
        turn = 3 if job.payload == b"ok" else job.attempts % 4
        if turn < 3:
            told |= [{job.id: Delay(20)}, {job.id: Retry("not yet")}, {}][turn]
        else:
            told[job.id] = "ok"
    return told


def waits(job: Job) -> Any:
    """Waits for the key ``go`` on the job's own server, by way of the job's own connection; then does as payload says:
    ``complete``, ``fail`` or ``extend``."""
    server = job._queue.server
    while server.read("GET", "go") is None:
        time.sleep(0.01)
    if job.payload == b"fail":
        raise RuntimeError("told to fail")
    if job.payload == b"extend":
        job.extend(60_000)
    return job.payload
