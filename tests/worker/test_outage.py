"""A server that was away: two lines a process, however many tasks of however many consumers noticed."""

from __future__ import annotations

import re

from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.worker import Consumer, ConsumerSettings
from emq_ops.worker.events import Trouble, WorkerEvent
from emq_ops.worker.outage import Outage
from tests.support.consuming import eventually, put
from tests.support.valkey import Valkey


def test_a_server_that_was_away_is_told_of_in_two_lines(durable: Valkey) -> None:
    lines: list[str] = []
    outage, troubles = Outage(lines.append), list[Trouble]()

    def listen(event: WorkerEvent) -> None:
        troubles.extend([event] if isinstance(event, Trouble) else [])
        assert outage.takes(event) or not isinstance(event, Trouble), event

    with connect(durable.url, ConnectionOptions(patience=0.2)) as server:
        queue = Queue(server, "orders")
        with (
            Consumer(queue, lambda _job: None, ConsumerSettings(beat=50), on_event=listen),
            Consumer(queue, lambda _job: None, ConsumerSettings(beat=50), on_event=listen),
        ):
            durable.kill()
            eventually(lambda: len({event.task for event in troubles}) > 1 and len(troubles) > 4, "several noticed")
            assert len(lines) == 1
            assert lines[0].startswith("connection lost: ")
            durable.restart()
            eventually(lambda: len(lines) == 2, "it is back")
            put(queue)
        assert re.fullmatch(r"back after \d+ s", lines[1])
        assert len(lines) == 2
