"""The demo's handlers and its worker process: jobs that succeed, fail, hang, or are lost with their worker."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.worker import Backoff, Consumer, ConsumerSettings, Job

ERRORS = (
    "HTTP 503 from https://api.example.test/v1/orders/{n}",
    "timeout after {n}00ms talking to warehouse-{n}",
)
HANG_SECONDS = 20
LEASE_MS = 2_000


def handle(job: Job) -> bytes:
    """Does what the payload says: ``{"do": "ok" | "fail" | "hang", "ms": 50}``."""
    order = json.loads(job.payload)
    if order["do"] == "hang":
        # No checkpoint, no keeper: to the outside this worker is gone.
        time.sleep(HANG_SECONDS)
    time.sleep(order.get("ms", 0) / 1000)
    if order["do"] == "fail":
        raise RuntimeError(ERRORS[order["n"] % len(ERRORS)].format(n=order["n"]))
    return b'{"ok": true}'


def work(folder: Path, name: str) -> None:
    """One worker process of queue `name` on the demo's server, until SIGTERM."""
    with connect("embedded", base_dir=folder) as server:
        consumer = Consumer(
            Queue(server, name),
            handle,
            ConsumerSettings(
                recovery="none",
                lease=LEASE_MS,
                keep=False,
                max_attempts=2,
                backoff=Backoff(base=200, longest=500),
                stop_deadline=1_000,
            ),
            concurrency=4,
            on_event=lambda _event: None,
        )
        consumer.run(signals=True)


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2])
