"""Worker processes against bare claim and complete calls in one connection, in one run.

100,000 jobs over 50 lanes, each with a limit, on a unix socket; 8 processes of 8 threads whose handler returns at once,
with recording and cancellation on. Rounds alternate with the baseline: one connection that claims from the lanes and
completes, one call after another, without records. Medians. While the workers run, a script samples all lanes at one
moment: books, ceilings, and how far the lanes are apart.

Then flat jobs: one worker process that settles each by itself, and one that works batches, beside the same bare calls.
At last one process over 10,000 lanes, every tenth of which weighs 3: its speed beside the bare calls, and how near each
lane's share of the first round of the rotation, by the records of what was settled, comes to its weight.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable

from emq_ops.protocol.ids import encode62
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import control, enqueue, reads
from emq_ops.protocol.transitions.claims import Claim, claim, claim_lane
from emq_ops.protocol.transitions.settle import complete
from tests.support.run_worker import start_worker
from tests.support.sizes import sized
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

SAMPLE = b"""
local base, flights, above, low, high = ARGV[1], {}, 0, math.huge, 0
for _, id in ipairs(redis.call('ZRANGE', base .. 'active', 0, -1)) do
  local group = redis.call('HGET', base .. 'job:' .. id, 'group')
  flights[group] = (flights[group] or 0) + 1
end
local limits = redis.call('HGETALL', base .. 'glimit')
for i = 1, #limits, 2 do
  local group = limits[i]
  local real, booked = flights[group] or 0, tonumber(redis.call('HGET', base .. 'gactive', group) or 0)
  if real > tonumber(limits[i + 1]) or booked ~= real then above = above + 1 end
  local waiting = redis.call('ZCARD', base .. 'g:' .. group .. ':pending')
  low, high = math.min(low, waiting), math.max(high, waiting)
end
return { above, high - low }
"""


class Sampler:
    """Samples on a thread of its own: how often, violations, and the widest gap between two lanes."""

    def __init__(self, url: str, base: str) -> None:
        self.samples = self.above = self.apart = 0
        self._url, self._base = url, base
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        with connect(self._url) as server:
            while not self._done.wait(0.02):
                above, apart = server.read("EVAL_RO", SAMPLE, 0, self._base)
                self.samples += 1
                self.above += above
                self.apart = max(self.apart, apart)


def seed(q: Queue, count: int, lanes: list[str], limit: int) -> None:
    """An empty server with `count` jobs, lane after lane, and every lane's limit."""
    q.server.write("FLUSHALL")
    for lane in lanes:
        control.limit_lane(q, lane, limit)
    for first in range(0, count, 10_000):
        places = range(first, min(first + 10_000, count))
        news = [
            enqueue.NewJob(f"JOB{encode62(n << 12)}", b"ok", lanes[n % len(lanes)] if lanes else None) for n in places
        ]
        enqueue.enqueue_many(q, news)


def run_bare(q: Queue, count: int, take: Callable[[Queue, int], Claim | None] = claim_lane) -> float:
    """Jobs a second of one connection."""
    started = time.perf_counter()
    done = 0
    while (found := take(q, 30_000)) is not None:
        complete(q, found.job, found.token)
        done += 1
    taken = time.perf_counter() - started
    if done != count:
        raise SystemExit(f"completed {done} of {count}")
    return count / taken


def run_workers(q: Queue, url: str, count: int, processes: int, zygote: Zygote) -> tuple[float, Sampler]:
    """Jobs a second of the worker processes, and what was sampled meanwhile."""
    with Sampler(url, q.keys.base) as sampler:
        started = time.perf_counter()
        handler = "tests.support.handlers:obedient"
        workers = [
            start_worker(zygote, url, q.name, handler, until_idle=False, claim=("lanes",)) for _ in range(processes)
        ]
        while reads.counts(q).completed < count:
            if any(worker.poll() is not None for worker in workers):
                raise SystemExit("a worker ended before all was done")
            time.sleep(0.01)
        taken = time.perf_counter() - started
    for worker in workers:
        worker.signal(signal.SIGTERM)
    if any(worker.wait() for worker in workers):
        raise SystemExit("a worker did not end well")
    recorded = q.server.read("XLEN", q.keys.stream("completions"))
    if recorded != count:
        raise SystemExit(f"{recorded} records of {count} jobs")
    return count / taken, sampler


def run_flat(q: Queue, url: str, count: int, batch: int | None, zygote: Zygote) -> float:
    """Jobs a second of one worker process, in batches of so many or one by one; flat jobs."""
    seed(q, count, [], 0)
    handler = "tests.support.handlers:obedient" if batch is None else "tests.support.handlers:all_ok"
    started = time.perf_counter()
    worker = start_worker(zygote, url, q.name, handler, until_idle=False, claim=("flat",), batch=batch)
    while reads.counts(q).completed < count:
        time.sleep(0.01)
    taken = time.perf_counter() - started
    worker.signal(signal.SIGTERM)
    if worker.wait():
        raise SystemExit("a worker did not end well")
    return count / taken


def compare_flat(q: Queue, url: str, count: int, rounds: int, batch: int, zygote: Zygote) -> None:
    """Prints bare calls, single settlement and batches beside one another, in turn; medians."""
    bare, single, batches = [], [], []
    for _ in range(rounds):
        seed(q, count, [], 0)
        bare.append(run_bare(q, count, claim))
        single.append(run_flat(q, url, count, None, zygote))
        batches.append(run_flat(q, url, count, batch, zygote))
    base, one, many = (statistics.median(speeds) for speeds in (bare, single, batches))
    print(
        f"flat, one process: bare {base:,.0f} jobs/s, single {one:,.0f} ({one / base:.2f}),"
        f" batches of {batch} {many:,.0f} ({many / base:.2f}; {many / one:.2f} of single)"
    )


def run_weighted(q: Queue, url: str, lanes: list[str], zygote: Zygote) -> None:
    """Prints the speed of one worker process over many lanes with weights, beside bare calls, and how fair it was."""
    count, jobs = len(lanes), 4 * len(lanes)
    weights = {lane: 3 if n % 10 == 0 else 1 for n, lane in enumerate(lanes)}
    seed(q, jobs, lanes, 8)
    bare = run_bare(q, jobs)
    seed(q, jobs, lanes, 8)
    for lane, weight in weights.items():
        if weight > 1:
            control.weight_lane(q, lane, weight)
    started = time.perf_counter()
    worker = start_worker(zygote, url, q.name, "tests.support.handlers:obedient", until_idle=False, claim=("lanes",))
    while reads.counts(q).completed < jobs:
        time.sleep(0.01)
    speed = jobs / (time.perf_counter() - started)
    worker.signal(signal.SIGTERM)
    if worker.wait():
        raise SystemExit("a worker did not end well")
    round_of_all, served = sum(weights.values()), Counter[str]()
    for _, flat in q.server.read("XRANGE", q.keys.stream("completions"), "-", "+", "COUNT", round_of_all):
        served[dict(zip(flat[::2], flat[1::2], strict=True))[b"group"].decode()] += 1
    exact = sum(served[lane] == weight for lane, weight in weights.items())
    most = max(abs(served[lane] - weight) for lane, weight in weights.items())
    print(
        f"{count:,} lanes, one process: bare {bare:,.0f} jobs/s, weighted {speed:,.0f} ({speed / bare:.2f}); in"
        f" the first round {exact:,} lanes had their weight, none was more than {most} off"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--lanes", type=int, default=50)
    parser.add_argument("--limit", type=int, default=4, help="jobs in flight a lane")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=100, help="jobs a batch, of the flat ones")
    parser.add_argument("--many", type=int, default=10_000, help="lanes of the last part")
    given = sized(parser, jobs=200, lanes=4, processes=2, rounds=1, many=50)
    lanes = [f"GRP{encode62(n)}" for n in range(given.lanes)]
    bare, workers = [], []
    with Valkey() as valkey, connect(valkey.url) as server, Zygote() as zygote:
        q = Queue(server, "bench")
        for place in range(given.rounds):
            few = max(given.jobs // 5, 1)
            seed(q, few, lanes, given.limit)
            bare.append(run_bare(q, few))
            seed(q, given.jobs, lanes, given.limit)
            speed, sampler = run_workers(q, valkey.url, given.jobs, given.processes, zygote)
            workers.append(speed)
            print(
                f"round {place + 1}: bare {bare[-1]:,.0f} jobs/s, {given.processes} workers {speed:,.0f} jobs/s;"
                f" {sampler.samples} samples, {sampler.above} limits passed, lanes at most {sampler.apart} apart"
            )
            if sampler.above:
                raise SystemExit("a limit was passed")
        run_weighted(q, valkey.url, [f"GRP{encode62(n)}" for n in range(given.many)], zygote)
        compare_flat(q, valkey.url, max(given.jobs // 5, 1), given.rounds, given.batch, zygote)
    fast, base = statistics.median(workers), statistics.median(bare)
    print(f"workers {fast:,.0f} jobs/s, bare {base:,.0f} jobs/s, ratio {fast / base:.2f} (medians of {given.rounds})")


if __name__ == "__main__":
    main()
