"""What metrics cost: the daemon's look at its queues, beside the same calls bare, and one scrape.

Wanted at 5,000 queues and a scrape every 30 s: at most 5 % of a core, which is 1.5 s a look and a scrape.

    python -m benchmarks.metrics [--queues 5000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from emq_ops.daemon.looks import QueueLooks
from emq_ops.daemon.telemetry import TaskFacts, Telemetry
from emq_ops.http.metrics.counters import EventCounters
from emq_ops.http.metrics.page import MetricsPage
from emq_ops.overview.look import COMPLETIONS, FLUSH, MOST_LANES
from emq_ops.protocol import ids
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import enqueue
from tests.support.sizes import sized
from tests.support.valkey import Valkey


def processor_ms(do: Callable[[], object]) -> float:
    """Processor time of this process, ms."""
    begun = time.process_time()
    do()
    return (time.process_time() - begun) * 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queues", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    given = sized(parser, queues=20, rounds=1)
    names = [f"queue-{n:05}" for n in range(given.queues)]
    with Valkey() as valkey, connect(valkey.url) as server:
        for name in names:
            enqueue.enqueue(Queue(server, name), ids.mint(), b"x")
        looks = QueueLooks(server, lambda: dict.fromkeys(names, ()))
        script = load("queue_look")
        client = valkey.client()
        sha = client.script_load(script.source)
        calls = []
        for name in names:
            k = keys_of(name)
            keys = [k.pending, k.active, k.schedule, k.dead, k.meta, k.ring, k.paused, k.glimit, k.gactive, k.repeat]
            keys += [k.completed, k.failed, k.lease, k.aside]
            calls.append(("EVALSHA", sha, len(keys), *keys, k.base, MOST_LANES, COMPLETIONS))

        def bare() -> None:
            for first in range(0, len(calls), FLUSH):
                pipeline = client.pipeline(transaction=False)
                for call in calls[first : first + FLUSH]:
                    pipeline.execute_command(*call)
                pipeline.execute()

        counters = EventCounters()
        tasks = [
            TaskFacts(name, task, task, 1, 0, 0, 0, 0.0) for name in names for task in ("stalled", "dead", "stream")
        ]

        def told() -> Telemetry:
            all_of = frozenset(names)
            return Telemetry(names, all_of, frozenset(), tasks, looks.found, 1.0, (), {}, None, None)

        page = MetricsPage(told, counters, 1000)
        figures = []
        for _ in range(given.rounds):
            figures.append((processor_ms(looks.round), processor_ms(bare), processor_ms(lambda: page.render(""))))
        look, plain, scrape = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"look at {given.queues:,} queues  {look:8.0f} ms of a core   (medians of {given.rounds})")
        print(f"  the same calls, bare     {plain:8.0f} ms, ratio {look / plain:.2f}")
        print(f"a scrape                   {scrape:8.0f} ms, {len(page.render('')[1]):,} bytes")
        print(f"at one of each every 30 s  {(look + scrape) / 300:8.1f} %  of a core (at most 5)")


if __name__ == "__main__":
    main()
