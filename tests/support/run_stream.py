"""Stream consumers in processes of their own, for `Zygote`; what they handle is noted on the server, under `seen`."""

from __future__ import annotations

import time
from typing import Any

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.worker import StreamConsumer, StreamEntry, StreamSettings
from tests.support.zygote import Child, Zygote

SEEN = "seen"


def start_stream(zygote: Zygote, url: str, queue: str, stream: str, *, slow_ms: int = 0, **more: Any) -> Child:
    """A new consumer; `more`: its settings; `slow_ms`: how long the handler takes."""
    return zygote.start(__name__, url=url, queue=queue, stream=stream, slow_ms=slow_ms, settings=more)


def child(spec: dict[str, Any]) -> None:
    with connect(spec["url"]) as server, connect(spec["url"]) as notes:

        def handle(entry: StreamEntry) -> None:
            time.sleep(spec["slow_ms"] / 1000)
            notes.write("SADD", SEEN, entry.id)

        settings = StreamSettings(**spec["settings"])
        StreamConsumer(Queue(server, spec["queue"]), spec["stream"], handle, settings).run(signals=True)
