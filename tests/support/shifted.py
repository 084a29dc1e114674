"""A host whose wall clock is elsewhere: processes under ``shifted_clock.c``, whose clock may be set while they run."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.cli import Ran
from tests.support.native import compile_shared

SOURCE = Path(__file__).with_name("shifted_clock.c")
COMMAND = [sys.executable, "-m", "emq_ops.cli.main"]
HOUR = 3600


class Process:
    """A process, as `tests.support.daemons.Daemon` wants it."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen, self.pid = popen, popen.pid

    def poll(self) -> int | None:
        return self._popen.poll()

    def wait(self, seconds: float = 60.0) -> int:
        return self._popen.wait(seconds)

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()


class ShiftedHost:
    """Runs commands by a clock that is `shift` seconds ahead of the real one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "shift"
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._mapped = mmap.mmap(opened.fileno(), 8)
        library = compile_shared(SOURCE, folder / "shifted_clock.so")
        self._env = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(file)}

    @property
    def shift(self) -> int:
        return int(struct.unpack("q", self._mapped[:])[0])

    @shift.setter
    def shift(self, seconds: int) -> None:
        self._mapped[:] = struct.pack("q", seconds)

    def start(self, *argv: str, cwd: Path, out: Path, env: dict[str, str]) -> Process:
        """As `tests.support.run_command.start_command`."""
        with out.open("ab") as log:
            return Process(
                subprocess.Popen([*COMMAND, *argv], cwd=cwd, env=env | self._env, stdout=log, stderr=subprocess.STDOUT)
            )

    def run(self, *argv: str, cwd: Path) -> Ran:
        """A command to its end."""
        done: Any = subprocess.run(
            [*COMMAND, *argv],
            cwd=cwd,
            env=os.environ | self._env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)
