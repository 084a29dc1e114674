"""Command lines in processes to which some packages are not installed.

``python -m tests.support.hidden`` reads ``[[folder, packages, argv], ...]`` as JSON and forks a child for each command
line. It hides all packages that are installed on demand, and imports what a child imported that did without all of
them: so the children after it have less to import, and nothing that they must not have. It writes a list: exit code,
and what was said on stderr.
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
from collections.abc import Collection, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.imported import forked

Line = tuple[Path, Collection[str], Sequence[str]]
"""A folder, the packages that are not there, a command line."""


class Ended(NamedTuple):
    """How a command line ended, and what it said on stderr."""

    code: int
    err: str


def without(lines: Sequence[Line]) -> list[Ended]:
    """Runs command lines, in order."""
    told = json.dumps([[str(folder), sorted(packages), list(argv)] for folder, packages, argv in lines])
    ran = subprocess.run(
        [sys.executable, "-m", __name__],
        input=told,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PATH": ""},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return [Ended(*one) for one in json.loads(ran.stdout)]


class _Finder:
    """Finds what is installed, but for the packages in `hidden`."""

    hidden: frozenset[str]

    def find_spec(self, name: str, *more: Any) -> Any:
        return None if name.partition(".")[0] in self.hidden else PathFinder.find_spec(name, *more)


def _ran(finder: _Finder, folder: str, packages: Sequence[str], argv: Sequence[str]) -> tuple[Ended, list[str]]:
    from emq_ops.cli.main import main

    finder.hidden = frozenset(packages)
    os.chdir(folder)
    with tempfile.TemporaryFile("w+") as err:
        with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.redirect_stderr(err):
            code = main(argv)
        err.seek(0)
        return Ended(code, err.read()), list(sys.modules)


def _serve() -> None:
    finder = _Finder()
    sys.meta_path[sys.meta_path.index(PathFinder)] = finder  # type: ignore[call-overload]
    finder.hidden = frozenset()
    from emq_ops.protocol.extras import EXTRAS

    finder.hidden = frozenset(EXTRAS)
    found = []
    for folder, packages, argv in json.load(sys.stdin):
        told, modules = forked(functools.partial(_ran, finder, folder, packages, argv))
        found.append(told)
        for name in modules if finder.hidden <= {*packages} else ():
            with contextlib.suppress(ImportError):  # one that takes its place by itself
                importlib.import_module(name)
        assert not finder.hidden & sys.modules.keys()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _serve()
