"""Batch workers and stream consumers, killed again and again: no job is lost, no record is handled by nobody.

CONSUMERS_MINUTES says how long; some seconds without.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable

from emq_ops.overview.streams import standing
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue, groups, reads, streams
from tests.support.consuming import eventually
from tests.support.invariants import violations
from tests.support.run_stream import SEEN, start_stream
from tests.support.run_worker import start_worker
from tests.support.valkey import Valkey
from tests.support.zygote import Child, Zygote

SECONDS = float(os.environ.get("CONSUMERS_MINUTES", "0.1")) * 60
STREAM, GROUP = "completions", "billing"
BATCH = {"batch": 20, "lease": 400, "beat": 50, "max_attempts": 1_000_000, "backoff": {"base": 0, "longest": 0}}
READ = {"group": GROUP, "start": "head", "min_idle": 300, "count": 20, "beat": 50, "attempts": None}


class Herd:
    """Processes of which one is killed now and then, and started again."""

    def __init__(self, starts: list[Callable[[], Child]], chance: random.Random) -> None:
        self._starts, self._chance = starts, chance
        self._living = [start() for start in starts]
        self.kills = 0

    def strike(self) -> None:
        place = self._chance.randrange(len(self._living))
        self._living[place].kill()
        self._living[place].wait()
        self._living[place] = self._starts[place]()
        self.kills += 1

    def end(self) -> None:
        for one in self._living:
            one.kill()
            one.wait()


def test_killed_consumers_lose_nothing(valkey: Valkey, server: Server, zygote: Zygote) -> None:
    q, chance = Queue(server, "orders"), random.Random(7)
    groups.create(q, STREAM, GROUP, "0")
    lanes = [ids.mint("GRP") for _ in range(3)]
    batch = lambda: start_worker(  # noqa: E731
        zygote, valkey.url, q.name, "tests.support.handlers:uneven", until_idle=False, **BATCH
    )
    readers = [
        lambda n=n: start_stream(zygote, valkey.url, q.name, STREAM, slow_ms=n, consumer=f"c{n}", **READ)
        for n in range(3)
    ]
    herd = Herd([batch, batch, *readers], chance)
    made: list[str] = []
    removed = 0
    try:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for _ in range(chance.randrange(40)):
                job = ids.mint()
                enqueue.enqueue(q, job, chance.choice([b"ok", b"flaky"]), group=chance.choice([None, *lanes]))
                made.append(job)
            time.sleep(chance.uniform(0.02, 0.3))
            herd.strike()
            removed += streams.retain(q, STREAM, keep=10).removed
        eventually(lambda: reads.counts(q).completed == len(made), "every job is completed", SECONDS + 60)
        eventually(lambda: _rest(q) == (0, 0), "every record is handled", 60)
    finally:
        herd.end()
    assert violations(server, q.name) == []
    assert standing(q, STREAM).added == len(made), "a record a job, none twice"
    assert Counter(reads.job_state(q, job) for job in made) == {reads.JobState.ABSENT: len(made)}
    assert server.read("SCARD", SEEN) == len(made)
    assert server.read("EXISTS", q.keys.stream(f"{STREAM}.dead")) == 0
    print(f"{len(made)} jobs, {herd.kills} kills, {removed} records trimmed meanwhile")


def _rest(q: Queue) -> tuple[int, int]:
    [group] = groups.listing(q, STREAM)
    return group.pending, group.lag if group.lag is not None else -1
