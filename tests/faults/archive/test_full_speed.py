"""A writer at full speed beside a driver that folds and trims every 50 ms; consumer groups that must miss nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import redis

from emq_ops.protocol.server import Server
from tests.faults.archive.world import STREAM, Locals, World, folder_store
from tests.support.daemons import wait_for
from tests.support.oracle import Seen, local_records
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

POLICY = {"keep": 100}


class Writer(threading.Thread):
    """Appends in pipelines until told to stop; remembers what XADD answered."""

    def __init__(self, client: redis.Redis, key: str, pause: float = 0) -> None:
        super().__init__()
        self.client, self.key, self.pause = client, key, pause
        self.over = threading.Event()
        self.sent: list[Seen] = []

    def run(self) -> None:
        number = 0
        with self.client.pipeline(transaction=False) as pipe:
            while not self.over.wait(self.pause):
                flats = [[b"n", b"%d" % (number + i), b"result", b"ok"] for i in range(100)]
                for flat in flats:
                    pipe.execute_command("XADD", self.key, "*", *flat)
                self.sent += [Seen.of(r, f) for r, f in zip(pipe.execute(), flats, strict=True)]
                number += 100


def run_beside(world: World, zygote: Zygote, root: Path, writer: Writer, seconds: float) -> list[dict[str, object]]:
    """The driver's cycles every 50 ms while the writer writes; then one last cycle."""
    stop = root / "stop"
    forever = {"cycles": 1_000_000, "interval": 0.05, "stop": str(stop), "force": False}
    run = world.start(zygote, "a", policy=POLICY, timeout=60, **forever)
    writer.start()
    time.sleep(seconds)  # the length of the test, not a wait for something
    wait_for(lambda: (n := len(writer.sent)) > 1000 and n - world.server.read("XLEN", world.key) > 500, why="trims")
    writer.over.set()
    writer.join()
    stop.touch()
    told = run.result()
    assert told["errors"] == []
    world.policy = POLICY
    world.run(zygote, "a")
    world.sent = writer.sent
    return list(told["reports"])


@pytest.mark.parametrize("seconds", [1.5, pytest.param(20, marks=pytest.mark.soak(minutes=1))])
def test_nothing_is_missing(seconds: float, valkey: Valkey, server: Server, tmp_path: Path, zygote: Zygote) -> None:
    world = World(server, valkey.url, "mail", Locals(tmp_path), folder_store(tmp_path / "bucket"))
    with valkey.client() as client:
        reports = run_beside(world, zygote, tmp_path, Writer(client, world.key), seconds)
    assert sum(int(str(report["trimmed"])) for report in reports) > 500, "it trimmed while the writer wrote"
    world.converged("a")
    assert local_records(world.locals.url("a"), "mail", STREAM)[0] == sorted(world.sent)


class Reader(threading.Thread):
    """A member of a consumer group: reads, and acknowledges at its own pace, until it has read the last entry."""

    def __init__(self, client: redis.Redis, key: str, group: str, start: str, pause: float) -> None:
        super().__init__()
        self.client, self.key, self.group, self.pause = client, key, group, pause
        client.execute_command("XGROUP", "CREATE", key, group, start, "MKSTREAM")
        self.over = threading.Event()
        self.read: list[bytes] = []

    def run(self) -> None:
        while True:
            last = self.over.is_set()
            words = ("XREADGROUP", "GROUP", self.group, "me", "COUNT", 50, "STREAMS", self.key, ">")
            reply = self.client.execute_command(*words)
            entries = list(reply[0][1]) if reply else []
            if entries:
                self.read += [entry[0] for entry in entries]
                self.client.execute_command("XACK", self.key, self.group, *[entry[0] for entry in entries])
            elif last:
                return
            time.sleep(0 if last else self.pause)  # a slow consumer


def test_groups_read_every_record(valkey: Valkey, server: Server, tmp_path: Path, zygote: Zygote) -> None:
    """One group is slow; another is made half-way, at the beginning of what is still there."""
    world = World(server, valkey.url, "mail", Locals(tmp_path), folder_store(tmp_path / "bucket"))
    clients = [valkey.client() for _ in range(3)]
    slow = Reader(clients[0], world.key, "slow", "0", 0.02)
    slow.start()
    writer = Writer(clients[1], world.key, pause=0.01)
    late: list[Reader] = []

    def join_late() -> None:
        late.append(Reader(clients[2], world.key, "late", "0", 0.005))
        late[0].start()

    half_way = threading.Timer(1.2, join_late)
    half_way.start()
    stop = tmp_path / "stop"
    forever = {"cycles": 1_000_000, "interval": 0.05, "stop": str(stop), "force": False}
    run = world.start(zygote, "a", policy=POLICY, **forever)
    writer.start()
    time.sleep(2.5)  # the length of the test
    writer.over.set()
    for thread in (writer, half_way):
        thread.join()
    for reader in (slow, late[0]):
        reader.over.set()
        reader.join()
    stop.touch()
    assert run.wait() == 0
    world.policy = POLICY
    world.run(zygote, "a")
    world.sent = writer.sent
    world.converged("a")
    ids = [f"{seen.ms}-{seen.seq}".encode() for seen in writer.sent]
    assert slow.read == ids
    assert late[0].read == ids[ids.index(late[0].read[0]) :]
    for client in clients:
        client.close()
