"""Workers in processes of their own, for `Zygote`: a consumer that runs until it is idle or is told to stop.

    worker = start_worker(zygote, url, "orders", "tests.support.handlers:obedient", log=path, lease=300)
    assert worker.wait() == 0

It exits 1 where it abandoned jobs. Its events are appended to `log` as JSON lines.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.worker import Backoff, BatchConsumer, BatchSettings, Consumer, ConsumerSettings, load_handler
from emq_ops.worker.events import WorkerEvent
from tests.support.zygote import Child, Zygote


def start_worker(
    zygote: Zygote, url: str, queue: str, handler: str, *, log: Path | None = None, until_idle: bool = True, **more: Any
) -> Child:
    """A new worker; `more`: options of the consumer."""
    path = str(log) if log else os.devnull
    return zygote.start(__name__, url=url, queue=queue, handler=handler, log=path, until_idle=until_idle, options=more)


def events_of(log: Path) -> list[dict[str, Any]]:
    """What a worker told so far: ``kind`` and the fields as text."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]


def child(spec: dict[str, Any]) -> None:
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(event: WorkerEvent) -> None:
        fields = {name: str(getattr(event, name)) for name in event.__dataclass_fields__}
        os.write(log, (json.dumps({"kind": type(event).__name__, **fields}) + "\n").encode())

    options = spec["options"]
    if "backoff" in options:
        options["backoff"] = Backoff(**options["backoff"])
    with connect(spec["url"]) as server:
        batch, queue = options.pop("batch", None), Queue(server, spec["queue"])
        handler = load_handler(spec["handler"])
        if batch is None:
            consumer = Consumer(queue, handler, ConsumerSettings(**options), on_event=tell)
        else:
            settings = ConsumerSettings(**{"concurrency": 1, **options})
            consumer = BatchConsumer(queue, handler, settings, batch=BatchSettings(batch), on_event=tell)
        report = consumer.run(signals=True, until_idle=spec["until_idle"])
    if report.abandoned:
        raise SystemExit(1)
