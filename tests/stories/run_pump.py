"""A pump of ours by the library, without a lease, in a process of its own: until it is killed."""

from __future__ import annotations

import time
from typing import Any

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import flows, recover, repeat


def child(spec: dict[str, Any]) -> None:
    with connect(spec["url"]) as server:
        queues = [Queue(server, name) for name in spec["queues"]]
        while True:
            for q in queues:
                recover.promote(q)
                repeat.fire(q)
                flows.deliver(q, 7)
            time.sleep(0.01)
