"""`emq-ops plan` on 1,000 queues, against the same reads sent as bare pipelines (redis-py with hiredis, depth 1,000).

Two plans: the first one of all (everything is new), and one over an applied revision where nothing changed; of a
config that takes the queues by a glob, and of one that names each. Reading the YAML comes before, and is told apart.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from emq_ops.cli.garbage import collect_seldom
from emq_ops.config.loader import Loaded, load
from emq_ops.config.wiring import Wiring
from emq_ops.deploy.deployment import Deployment
from emq_ops.deploy.render import text
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol import ids
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import Script
from emq_ops.protocol.server import Arg, Server, connect
from tests.support.sizes import sized
from tests.support.valkey import Valkey

DEAD = 30
LANE = "GRP0SSBKAh61tG"
POLICIES = (
    "    stalled: {every: 30s}\n    dead: {every: 10m, keep: 100}\n    streams: {completions: {keep: 100}}\n"
    f"    settings: {{paused: false, concurrency: 50, lanes: {{{LANE}: {{limit: 2}}}}}}\n"
)


class Recorded:
    """A server that notes the reads that go through it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.commands: list[tuple[Arg, ...]] = []

    def read(self, *command: Arg) -> Any:
        self.commands.append(command)
        return self._server.read(*command)

    def read_many(self, commands: list[tuple[Arg, ...]]) -> list[Any]:
        self.commands += commands
        return self._server.read_many(commands)

    def run_many(self, script: Script, calls: Any, *, readonly: bool = False) -> list[Any]:
        for keys, args in calls:
            self.commands.append(("EVALSHA_RO", script.sha, len(keys), *keys, *args))
        return self._server.run_many(script, calls, readonly=readonly)

    def scan(self, match: str = "*", *, count: int = 1000) -> Any:
        return self._server.scan(match, count=count)

    def queues(self) -> list[str]:
        cursor: Any = b"0"
        while True:
            command = ("SCAN", cursor, "MATCH", "emq:{*}:*", "COUNT", 1000)
            self.commands.append(command)
            cursor, _ = self._server.read(*command)
            if cursor == b"0":
                return self._server.queues()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


def timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def bare(client: redis.Redis, commands: list[tuple[Arg, ...]]) -> None:
    for first in range(0, len(commands), 1000):
        with client.pipeline(transaction=False) as pipe:
            for command in commands[first : first + 1000]:
                pipe.execute_command(*command)
            pipe.execute()


def fill(client: redis.Redis, queues: int) -> None:
    pipe = client.pipeline(transaction=False)
    for n in range(queues):
        keys = keys_of(f"queue-{n:04}")
        for _ in range(DEAD):
            pipe.zadd(keys.dead, {ids.mint(): 0})
        pipe.hset(keys.completed, "count", 5)
        pipe.xadd(keys.stream("completions"), {"a": "b"})
        if n % 100 == 0:
            pipe.execute()
    pipe.execute()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = sized(parser, queues=20, rounds=1)
    collect_seldom()  # as every command does
    with Valkey() as valkey, tempfile.TemporaryDirectory() as folder, connect(valkey.url) as server:
        client = valkey.client()
        client.get_encoder()
        client.response_callbacks.clear()
        fill(valkey.client(), given.queues)
        by_glob, by_name = Path(folder) / "glob.yaml", Path(folder) / "names.yaml"
        by_glob.write_text(f'archive: {{}}\nqueues:\n  "queue-*":\n{POLICIES}')
        by_name.write_text(
            "archive: {}\nqueues:\n" + "".join(f"  queue-{n:04}:\n{POLICIES}" for n in range(given.queues))
        )
        for how, file in (("a glob", by_glob), ("names", by_name)):
            started = time.perf_counter()
            loaded = load([file], {})
            print(f"reading the YAML of {how:<14} {(time.perf_counter() - started) * 1000:8.1f} ms")
            with open_ledger(f"sqlite:///{folder}/{file.stem}.db") as ledger:
                measure(f"first plan, {how}", server, client, ledger, loaded, given.rounds)
                session = Deployment(server, ledger, Wiring.of_urls({}, Path(folder)))
                session.apply(session.propose(loaded))
                measure(f"nothing changed, {how}", server, client, ledger, loaded, given.rounds)
            for n in range(given.queues):  # back to how it was
                keys = keys_of(f"queue-{n:04}")
                client.execute_command("DEL", keys.meta, keys.glimit)


def measure(what: str, server: Server, client: redis.Redis, ledger: Any, loaded: Loaded, rounds: int) -> None:
    watched = Recorded(server)
    Deployment(watched, ledger, Wiring.of_urls({}, Path())).propose(loaded)  # type: ignore[arg-type]
    ours, theirs = [], []
    for _ in range(rounds):
        session = Deployment(server, ledger, Wiring.of_urls({}, Path()))
        ours.append(timed(lambda s=session: text(s.propose(loaded).plan)))  # type: ignore[misc]
        theirs.append(timed(lambda: bare(client, watched.commands)))
    mine, pipes = statistics.median(ours), statistics.median(theirs)
    print(f"{what:<34} {mine * 1000:8.1f} ms   {len(watched.commands):,} reads (median of {rounds})")
    print(f"{'  the same reads, bare pipelines':<34} {pipes * 1000:8.1f} ms")
    print(f"{'  ratio':<34} {mine / pipes:8.2f}      (at most 5)")


if __name__ == "__main__":
    main()
