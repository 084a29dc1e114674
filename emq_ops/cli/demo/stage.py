"""The demo's processes: the daemon and the workers, started, killed and ended."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from emq_ops.protocol import files, ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.enqueue import NewJob, enqueue_many

QUEUES = ("orders", "mail")
MARK = ".emq-ops-demo"
"""Stands in a folder that a demo made, and may make anew."""
LANES = [f"GRP{ids.encode62(n)}" for n in (1, 2, 3)]


def _empty(folder: Path) -> None:
    """Removes the folder of an earlier demo. Raises BadInputError for one that holds anything else."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise BadInputError("not a folder", where=str(folder), fix="--folder with the name of a new one")
    if any(folder.iterdir()) and not (folder / MARK).is_file():
        raise BadInputError(
            "not empty, and of no earlier demo", where=str(folder), fix="--folder with the name of a new one"
        )
    shutil.rmtree(folder)


class Stage:
    """A fresh folder with the config and its overlay, and the processes that run there."""

    def __init__(self, folder: Path, config: Path | None) -> None:
        self.folder = folder
        _empty(folder)
        files.make_private(folder)
        (folder / MARK).touch()
        overlay = resources.files("emq_ops.cli.demo").joinpath("overlay.yaml").read_text("utf-8")
        self.files = []
        if config is not None:
            shutil.copyfile(config, folder / "config.yaml")
            self.files.append(folder / "config.yaml")
        (folder / "overlay.yaml").write_text(overlay, "utf-8")
        self.files.append(folder / "overlay.yaml")
        self.log = folder / "daemon.log"
        self.daemon: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, list[subprocess.Popen[bytes]]] = {queue: [] for queue in QUEUES}

    @property
    def options(self) -> list[str]:
        """The ``-c`` of every command on this stage."""
        return [word for path in self.files for word in ("-c", str(path))]

    def _environment(self) -> dict[str, str]:
        # The demo is on its own server, whatever the environment says of others.
        return {name: value for name, value in os.environ.items() if name != "EMQ_URL"}

    def _start(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._environment(),
                start_new_session=True,
            )

    def start_daemon(self) -> None:
        """``emq-ops up --apply`` on the config."""
        self.daemon = self._start(
            ["emq_ops.cli.main", *self.options, "up", "--apply", "--log", "json", "--verbose"], self.log
        )

    def start_worker(self, queue: str) -> None:
        """One more worker process."""
        command = ["emq_ops.cli.demo.jobs", str(self.folder), queue]
        self.workers[queue].append(self._start(command, self.folder / "workers.log"))

    def kill_worker(self, queue: str) -> int:
        """SIGKILL to the oldest living worker of `queue`; returns its process id."""
        process = self.workers[queue].pop(0)
        process.kill()
        process.wait()
        return process.pid

    def end(self) -> None:
        """SIGTERM to all, then SIGKILL to what is left."""
        processes = [p for many in self.workers.values() for p in many]
        if self.daemon is not None:
            processes.append(self.daemon)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def events(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """What the daemon logged from byte `offset` on, and where that ends."""
        with self.log.open("rb") as source:
            source.seek(offset)
            whole, newline, _ = source.read().rpartition(b"\n")
        found = []
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found, offset + len(whole) + len(newline)


def orders(count: int, chance: random.Random) -> Iterator[NewJob]:
    """Jobs: most succeed, some fail, a few hang; some of them grouped."""
    for n in range(count):
        what = chance.choices(("ok", "fail", "hang"), weights=(80, 15, 2))[0]
        payload = json.dumps({"do": what, "n": n % 7, "ms": chance.randrange(5, 60)}).encode()
        yield NewJob(ids.mint(), payload, chance.choice(LANES) if chance.random() < 0.3 else None)


def feed(server: Server, count: int, chance: random.Random) -> int:
    """Enqueues `count` jobs on each queue; returns how many were admitted."""
    admitted = 0
    for name in QUEUES:
        admitted += sum(reply is True for reply in enqueue_many(Queue(server, name), list(orders(count, chance))))
    return admitted
