"""A command that has a terminal's whole screen, in a process of its own: what stands on it, what is typed."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyte


class Terminal:
    """``emq-ops ARGV...`` on a pseudo-terminal of its own."""

    def __init__(self, *argv: str, folder: Path, columns: int = 120, lines: int = 30) -> None:
        self._ours, theirs = os.openpty()
        self.columns, self.lines = columns, lines
        self._screen, self._lock = pyte.Screen(columns, lines), threading.Lock()
        self._stream = pyte.ByteStream(self._screen)
        self._size(theirs)
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES"):  # the terminal says it
            environment.pop(name, None)
        command = [sys.executable, "-m", "emq_ops.cli.main", *argv]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, start_new_session=True
        )
        self.settings = termios.tcgetattr(theirs)
        self._theirs = theirs
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _size(self, fd: int) -> None:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", self.lines, self.columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._ours, 65536)
            except OSError:
                return
            with self._lock:
                self._stream.feed(part)

    @property
    def text(self) -> str:
        """What stands on the screen."""
        with self._lock:
            return "\n".join(self._screen.display)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        with self._lock:
            self.columns, self.lines = columns, lines
            self._screen.resize(lines, columns)
        self._size(self._ours)
        os.kill(self.process.pid, signal.SIGWINCH)

    def until(self, seen: str | Callable[[str], bool], timeout_s: float = 30) -> str:
        """The screen, once `seen` stands on it."""
        holds = seen if callable(seen) else lambda text: seen in text
        end = time.monotonic() + timeout_s
        while not holds(text := self.text):
            assert time.monotonic() < end, (
                f"never on the screen: {seen} (exit {self.process.poll()}, reader {self._reader.is_alive()}) {text!r}"
            )
            time.sleep(0.05)
        return text

    def close(self) -> tuple[int, list[object]]:
        """The exit code, and the terminal's settings as it left them."""
        code = self.process.wait(20)
        left = termios.tcgetattr(self._theirs)
        os.close(self._theirs)
        os.close(self._ours)
        self._reader.join(5)
        return code, left
