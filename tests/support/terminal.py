"""A command line at a terminal: what is typed stands ready in it, and what is asked is read back."""

from __future__ import annotations

import contextlib
import os
import sys
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
