"""What command lines import, each in a process of its own.

``python -m tests.support.imported`` in a folder reads ``[[libraries, argv], ...]`` as JSON. It forks a process for each
set of libraries, which imports them and forks a child for each command line: a child pays for no library that it may
import, nor for what a child before it imported, if that brought no other library. It writes a list: exit code, what was
said on stderr, and which libraries came that the given ones do not import themselves.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emq_ops.cli.main import main

OURS = {"__main__", "emq_archive", "emq_ops", "emq_ops_lua", "emq_ops_playbooks", "tests"}
HEAVY = ("asyncio", "http.server", "multiprocessing", "unittest", "sqlalchemy.dialects.postgresql", "sqlalchemy.orm")
"""What counts like a library of its own."""


class Imported(NamedTuple):
    """How a command line ended, and the libraries that it imported beyond those that were given."""

    code: int
    err: str
    more: list[str]


def imported(folder: Path, lines: Sequence[tuple[Collection[str], Sequence[str]]]) -> list[Imported]:
    """Runs command lines in a folder, each with the libraries that are imported before it; in order, but those with the
    same libraries together."""
    told = json.dumps([[sorted(libraries), list(argv)] for libraries, argv in lines])
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


def forked(work: Callable[[], Any]) -> Any:
    """What `work` returns in a process of its own, as JSON has it."""
    with tempfile.TemporaryFile("w+") as told:
        if (pid := os.fork()) == 0:
            code = 1
            try:
                json.dump(work(), told)
                told.flush()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        told.seek(0)
        return json.load(told)


def _ran(argv: Sequence[str], before: set[str]) -> tuple[Imported, list[str]]:
    """How a command line ended, and all modules that there are then."""
    with tempfile.TemporaryFile("w+") as err:
        with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.redirect_stderr(err):
            code = main(argv)
        err.seek(0)
        return Imported(code, err.read(), sorted(_libraries() - before)), list(sys.modules)


def _group(libraries: Sequence[str], lines: Sequence[Sequence[str]]) -> list[Imported]:
    for name in libraries:
        importlib.import_module(name)
    before = _libraries()
    found = []
    for left, argv in enumerate(lines, 1 - len(lines)):
        told, modules = forked(functools.partial(_ran, argv, before))
        found.append(Imported(*told))
        for name in modules if left and not found[-1].more else ():
            with contextlib.suppress(ImportError):  # one that takes its place by itself
                importlib.import_module(name)
        assert _libraries() == before, f"{argv}: {_libraries() - before}"
    return found


def _serve() -> None:
    lines = [(tuple(libraries), argv) for libraries, argv in json.load(sys.stdin)]
    found = {
        libraries: iter(forked(functools.partial(_group, libraries, [argv for own, argv in lines if own == libraries])))
        for libraries in dict.fromkeys(libraries for libraries, _ in lines)
    }
    json.dump([next(found[libraries]) for libraries, _ in lines], sys.stdout)


if __name__ == "__main__":
    _serve()
