"""What command lines import, each in a process of its own.

``python -m tests.support.imported`` in a folder reads ``[libraries, [argv, ...]]`` as JSON, imports the libraries, and
forks a child for each command line: a child pays for no library that it may import. It writes a list: exit code, what
was said on stderr, and which libraries came that the given ones do not import themselves.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from emq_ops.cli.main import main

OURS = {"__main__", "emq_archive", "emq_ops", "emq_ops_lua", "emq_ops_playbooks", "tests"}
HEAVY = ("asyncio", "http.server", "multiprocessing", "unittest", "sqlalchemy.dialects.postgresql", "sqlalchemy.orm")
"""What counts like a library of its own."""


class Imported(NamedTuple):
    """How a command line ended, and the libraries that it imported beyond those that were given."""

    code: int
    err: str
    more: list[str]


def imported(folder: Path, libraries: Sequence[str], lines: Sequence[Sequence[str]]) -> list[Imported]:
    """Runs command lines, in order, in a folder."""
    told = json.dumps([sorted(libraries), list(lines)])
    args = [sys.executable, "-m", __name__]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "XDG_CONFIG_HOME": str(folder / "user")}
    ran = subprocess.run(
        args, input=told, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    return [Imported(*one) for one in json.loads(ran.stdout)]


def _libraries() -> set[str]:
    tops = {name.partition(".")[0] for name in sys.modules}
    known = {*OURS, *sys.stdlib_module_names}
    return {name for name in tops if name not in known and not name.startswith("_")} | {*HEAVY} & sys.modules.keys()


def _serve() -> None:
    libraries, lines = json.load(sys.stdin)
    for name in libraries:
        importlib.import_module(name)
    before = _libraries()
    found = []
    for argv in lines:
        with tempfile.TemporaryFile("w+") as told, tempfile.TemporaryFile("w+") as err:
            if (pid := os.fork()) == 0:
                with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.redirect_stderr(err):
                    code = main(argv)
                err.flush()
                json.dump([code, sorted(_libraries() - before)], told)
                told.flush()
                os._exit(0)
            os.waitpid(pid, 0)
            told.seek(0)
            err.seek(0)
            code, more = json.load(told)
            found.append((code, err.read(), more))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _serve()
