"""One command line of the tool, in this process: exit code, stdout, stderr."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass

from emq_ops.cli.main import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def emq(*argv: str) -> Ran:
    """Runs ``emq-ops ARGV...``."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in argv])
    return Ran(code, out.getvalue(), err.getvalue())
