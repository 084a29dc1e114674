"""`emq-ops apply` of 2,000 queues with 8,000 settings: against bare pipelines of as many writes, and one by one.

The state is SQLite (FULL) in a temporary folder. The server's own figures say how long a step takes there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from pathlib import Path
from typing import Any

import redis

from emq_ops.config.loader import load
from emq_ops.config.wiring import Wiring
from emq_ops.deploy import apply
from emq_ops.deploy.deployment import Deployment
from emq_ops.deploy.render import text
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.server import Server, connect
from tests.support.sizes import sized
from tests.support.valkey import Valkey

SETTINGS = 4


def config(queues: int) -> str:
    one = "{settings: {paused: true, concurrency: 50, rate: 9, lanes: {GRP0SSBKAh61tG: {limit: 2}}}}"
    return "queues:\n" + "".join(f"  q{number:04d}: {one}\n" for number in range(queues))


def applied(server: Server, queues: int) -> tuple[float, int]:
    """Seconds of an apply (the plan before it not counted), and lines of the plan's text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "c.yaml"
        file.write_text(config(queues))
        with open_ledger(f"sqlite:///{folder}/state.db") as ledger:
            session = Deployment(server, ledger, Wiring.of_urls({}, Path(folder)))
            proposal = session.propose(load([file], {}))
            lines = text(proposal.plan).count("\n")
            started = time.perf_counter()
            done = session.apply(proposal)
            took = time.perf_counter() - started
    assert done.written == queues * SETTINGS
    return took, lines


def bare(client: redis.Redis, queues: int) -> float:
    """Seconds of as many plain writes in pipelines of 200."""
    started = time.perf_counter()
    pipe: Any
    for first in range(0, queues * SETTINGS, apply.MOST_AT_ONCE):
        with contextlib.closing(client.pipeline(transaction=False)) as pipe:
            for number in range(first, first + apply.MOST_AT_ONCE):
                pipe.hset(f"bare:{{q{number // SETTINGS}}}:meta", str(number % SETTINGS), "50")
            pipe.execute()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=2_000)
    parser.add_argument("--few", type=int, default=100, help="queues that are applied one write at a time")
    given = sized(parser, queues=20, few=2)
    queues, few = given.queues, given.few
    with Valkey() as valkey, connect(valkey.url) as server, redis.Redis(unix_socket_path=str(valkey.socket)) as client:
        with contextlib.redirect_stdout(io.StringIO()):
            applied(server, 1)  # loads scripts and migrations
        client.flushall()
        client.config_resetstat()
        took, lines = applied(server, queues)
        stats = client.info("commandstats")
        slowest = max(stats[name]["usec_per_call"] for name in stats if name.startswith("cmdstat_evalsha"))
        plain = bare(client, queues)
        client.flushall()
        apply.MOST_AT_ONCE = 1
        single, _ = applied(server, few)
        each = single / (few * SETTINGS)
        print(f"apply of {queues:,} queues, {queues * SETTINGS:,} settings: {took:.2f} s, {lines} lines of plan")
        print(f"  a step: {took / queues / SETTINGS * 1000:.3f} ms; on the server at most {slowest:.0f} us on average")
        print(f"  against bare pipelines of as many writes ({plain:.2f} s): {took / plain:.1f} times")
        print(
            f"  against one by one ({each * 1000:.2f} ms a step): {each * queues * SETTINGS / took:.1f} times as fast"
        )


if __name__ == "__main__":
    main()
