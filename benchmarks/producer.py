"""A producer's 100,000 jobs: plain ones in one call, in 50 lanes, one by one, and awaited one by one, on a unix socket.

Wanted: many in one call under 5 s. Payloads of 100 bytes. Medians, and the process's own processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable

from emq_ops.producer import BYTES, AsyncProducer, EmqError, Enqueued, JobSpec, Producer, lane_of
from emq_ops.protocol.server import connect
from tests.support.sizes import sized
from tests.support.valkey import Valkey

WANTED_SECONDS = 5.0
PAYLOAD = b"x" * 100


def many(url: str, count: int) -> int:
    with Producer(url, codec=BYTES) as producer:
        return _added(producer.enqueue_many("bench", [PAYLOAD] * count))


def in_lanes(url: str, count: int) -> int:
    lanes = [lane_of(str(n)) for n in range(50)]
    with Producer(url, codec=BYTES) as producer:
        return _added(producer.enqueue_many("bench", [JobSpec(PAYLOAD, lanes[n % 50]) for n in range(count)]))


def singly(url: str, count: int) -> int:
    with Producer(url, codec=BYTES) as producer:
        return sum(producer.enqueue("bench", PAYLOAD).added for _ in range(count))


def awaited(url: str, count: int) -> int:
    async def run() -> int:
        async with AsyncProducer(url, codec=BYTES) as producer:
            told = await asyncio.gather(*(producer.enqueue("bench", PAYLOAD) for _ in range(count)))
            return sum(one.added for one in told)

    return asyncio.run(run())


def _added(told: list[Enqueued | EmqError]) -> int:
    return sum(isinstance(one, Enqueued) and one.added for one in told)


WAYS: dict[str, tuple[Callable[[str, int], int], int]] = {
    "many in one call": (many, 1),
    "many, 50 lanes": (in_lanes, 1),
    "one by one": (singly, 10),
    "awaited one by one": (awaited, 1),
}
"""Each with the share of the jobs that it is measured with."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = sized(parser, jobs=2_000, rounds=1)
    with Valkey() as valkey, connect(valkey.url) as server:
        for name, (way, share) in WAYS.items():
            count, took, busy = max(given.jobs // share, 1), [], []
            for _ in range(given.rounds):
                server.write("FLUSHALL")
                began, cpu = time.perf_counter(), time.process_time()
                if way(valkey.url, count) != count:
                    raise SystemExit(f"{name}: not all of them were added")
                took.append(time.perf_counter() - began)
                busy.append(time.process_time() - cpu)
            seconds, own = statistics.median(took), statistics.median(busy)
            print(f"{name}: {count:,} in {seconds:.2f} s ({count / seconds:,.0f} a second), {own:.2f} s of our own")
            if way is many and not given.smoke and seconds > WANTED_SECONDS:
                raise SystemExit(f"more than {WANTED_SECONDS:.0f} s")


if __name__ == "__main__":
    main()
