"""A command line at a terminal: what is typed stands ready in it, and what is asked is read back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import termios
from collections.abc import Iterator
from typing import Literal
from unittest.mock import patch

from emq_ops.cli.main import main
from tests.support.cli import Ran


def at_terminal(*argv: str, typed: str = "") -> Ran:
    """Runs ``emq-ops ARGV...`` with a terminal as stdin and stderr, on which `typed` is typed. `out` is empty."""
    ours, theirs = os.openpty()
    os.write(ours, typed.encode())
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, ours)
        terminal = stack.enter_context(open(theirs, "r+b", buffering=0))
        stdin = stack.enter_context(open(os.dup(terminal.fileno()), encoding="utf-8"))
        stderr = stack.enter_context(open(os.dup(terminal.fileno()), "w", encoding="utf-8"))
        with open(os.devnull, "w") as out, patch.multiple(sys, stdin=stdin, stderr=stderr, stdout=out):
            code = main(list(argv))
            stderr.flush()
        os.set_blocking(ours, False)
        said = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(ours, 65536):
                said += part
    return Ran(code, "", said.decode().replace("\r\n", "\n"))


class Screen:
    """What was drawn on a terminal."""

    def __init__(self, fd: int) -> None:
        self._fd, self._said = fd, b""
        os.set_blocking(fd, False)

    def text(self) -> str:
        """All of it so far, as it was written."""
        with contextlib.suppress(OSError):  # nothing more, or its other end is closed
            while part := os.read(self._fd, 65536):
                self._said += part
        return self._said.decode(errors="replace").replace("\r\n", "\n")


@contextlib.contextmanager
def screen(columns: int, stream: Literal["stdout", "stderr"] = "stdout") -> Iterator[Screen]:
    """A terminal of so many columns as a standard stream."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(theirs, "w", encoding="utf-8") as terminal:
        found = Screen(ours)
        with patch.object(sys, stream, terminal):
            yield found
            terminal.flush()
        found.text()
    os.close(ours)
