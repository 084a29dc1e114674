"""One command line of the tool, in this process: exit code, stdout, stderr."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple

from emq_ops.cli.main import main


class Ran(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def emq(*argv: str) -> Ran:
    """Runs ``emq-ops ARGV...``."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in argv])
    return Ran(code, out.getvalue(), err.getvalue())
