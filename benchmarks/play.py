"""500 queues through `health-check.yaml`, against the bare commands that it must send (redis-py with hiredis).

Bare: what finds the queues, and one look at each: (a) the look as the playbook sends it, a script call a queue, one
after the other; (b) the same in one pipeline; (c) without the script, the single commands it stands for, pipelined a
queue at a time. Start-up and imports are not counted; the ledger is (SQLite, synchronous FULL). Medians of rounds. The
processor's time, ours and the server's together, is printed beside the clock's: on a busy host it says more.
"""

from __future__ import annotations

import argparse
import functools
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from emq_ops.ledger.ledger import open_ledger
from emq_ops.playbook.context import Ops
from emq_ops.playbook.play import PlayOptions, prepare
from emq_ops.protocol import ids
from emq_ops.protocol.keyspace import Keys, keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import connect
from tests.support.sizes import sized
from tests.support.valkey import Valkey

JOBS = 10


def fill(client: redis.Redis, names: list[str]) -> None:
    """Queues with some pending and dead jobs each."""
    pipe = client.pipeline(transaction=False)
    for name in names:
        k = keys_of(name)
        for place in (k.pending, k.dead):
            pipe.zadd(place, {ids.mint(): 0 for _ in range(JOBS)})
        pipe.hset(k.completed, "count", 5)
    pipe.execute()


def timed(client: redis.Redis, call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor: this process's and the server's."""
    before, busy = served(client), time.process_time()
    started = time.perf_counter()
    call()
    took = time.perf_counter() - started
    busy = time.process_time() - busy
    return took, busy + served(client) - before


def served(client: redis.Redis) -> float:
    """Processor seconds that the server took so far."""
    text = client.execute_command("INFO", "cpu").decode()
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return float(rows["used_cpu_user"]) + float(rows["used_cpu_sys"])


def find(client: redis.Redis) -> None:
    """The scan that finds the queues."""
    cursor: Any = b"0"
    while True:
        cursor, _ = client.execute_command("SCAN", cursor, "MATCH", "emq:{*}:*", "COUNT", 1000)
        if cursor in (b"0", 0):
            return


def script_call(k: Keys) -> tuple[Any, ...]:
    """The look at one queue, as a command."""
    keys = [k.pending, k.active, k.schedule, k.dead, k.completed, k.failed, k.meta, k.repeat, k.wake, k.ring, k.paused]
    keys += [k.glimit, k.gactive, k.gweight, k.lease]
    return ("EVALSHA_RO", load("health").sha, len(keys), *keys, k.base)


def single_calls(k: Keys) -> list[tuple[Any, ...]]:
    """The same without the script."""
    now = int(time.time() * 1000)
    return [
        ("TIME",),
        *(("ZCARD", key) for key in (k.pending, k.active, k.schedule, k.dead)),
        ("HGET", k.completed, "count"),
        ("HGET", k.failed, "count"),
        ("HEXISTS", k.meta, "paused"),
        ("LRANGE", k.ring, 0, -1),
        ("SMEMBERS", k.paused),
        ("HKEYS", k.glimit),
        ("HKEYS", k.gactive),
        ("EXISTS", k.completed, k.failed, k.meta, k.repeat, k.wake, k.ring, k.paused, k.glimit, k.gactive, k.gweight),
        ("ZCOUNT", k.active, "-inf", now),
        ("ZCOUNT", k.schedule, "-inf", now),
        ("ZRANGE", k.pending, 0, 0),
        ("ZRANGE", k.active, 0, 0, "WITHSCORES"),
        ("ZRANGE", k.schedule, 0, 0, "WITHSCORES"),
        ("HGET", k.lease, "until"),
    ]


def one_by_one(client: redis.Redis, names: list[str]) -> None:
    """(a)"""
    find(client)
    for name in names:
        client.execute_command(*script_call(keys_of(name)))


def piped(client: redis.Redis, names: list[str]) -> None:
    """(b)"""
    find(client)
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.execute_command(*script_call(keys_of(name)))
    pipe.execute()


def singly(client: redis.Redis, names: list[str]) -> None:
    """(c)"""
    find(client)
    for name in names:
        pipe = client.pipeline(transaction=False)
        for command in single_calls(keys_of(name)):
            pipe.execute_command(*command)
        pipe.execute()


def main() -> None:
    """Prints the medians and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=15)
    given = sized(parser, queues=20, rounds=1)
    names = [f"queue-{n:03}" for n in range(given.queues)]
    with Valkey() as valkey, connect(valkey.url) as server, tempfile.TemporaryDirectory() as folder:
        client = valkey.client()
        client.response_callbacks.clear()
        fill(client, names)
        client.script_load(load("health").source)
        with open_ledger(f"sqlite:///{Path(folder)}/state.db") as ledger:
            times: dict[str, list[tuple[float, float]]] = {"play": [], "a": [], "b": [], "c": []}

            def play() -> None:
                ended = prepare(Ops(server, ledger), "health-check", PlayOptions(), environment={}).run()
                assert (ended.status, len(ended.tallies)) == ("done", given.queues)

            gc.freeze()  # as the command does
            for _ in range(given.rounds):
                times["play"].append(timed(client, play))
                for name, call in (("a", one_by_one), ("b", piped), ("c", singly)):
                    times[name].append(timed(client, functools.partial(call, client, names)))
        client.close()
    clock, busy = (
        {name: statistics.median(pair[which] for pair in found) for name, found in times.items()} for which in (0, 1)
    )
    took, spent = 1000 * clock["play"], 1000 * busy["play"]
    print(f"health-check.yaml on {given.queues} queues: {took:.0f} ms, processor {spent:.0f} ms")
    for name, text in (
        ("a", "one call after the other"),
        ("b", "one pipeline"),
        ("c", "single commands, a pipeline a queue"),
    ):
        ratio, loaded = clock["play"] / clock[name], busy["play"] / busy[name]
        print(f"  bare ({text}): {1000 * clock[name]:.0f} ms, ratio {ratio:.1f}; processor ratio {loaded:.1f}")


if __name__ == "__main__":
    main()
