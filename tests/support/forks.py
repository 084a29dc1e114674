"""A process with everything imported that forks a child for each run of something, so that killing one costs
milliseconds. What a child does is a module of the tests: its ``child(spec)``, and in PRELOADED what that imports.

    class PassZygote(Forks):
        module = __name__

    with PassZygote() as zygote:
        assert zygote.run(what="sweep", url=..., kill=["commit", "before", 3]) == -signal.SIGKILL
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

ROOT = Path(__file__).parents[2]


class Forks:
    """The parent, seen from a test; one child at a time. `pid`: the child's."""

    module: ClassVar[str]

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", __name__, self.module]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = 0
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def start(self, **spec: Any) -> int:
        """Forks a child; answers its pid. `wait` takes its end."""
        self._say(json.dumps(spec))
        self.pid = int(self._hear())
        self._say("go")
        return self.pid

    def wait(self) -> int:
        """The exit code of the child (70: it raised), or minus the signal that ended it."""
        return int(self._hear())

    def run(self, **spec: Any) -> int:
        """Runs a child to its end."""
        self.start(**spec)
        return self.wait()

    def current(self) -> int:
        """The pid of the child, for a proxy that kills it."""
        return self.pid

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the zygote is gone"
        return line


def _serve(child: Callable[[dict[str, Any]], None]) -> None:
    for line in sys.stdin:
        spec = json.loads(line)
        ready, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                os.close(0)
                os.close(go)
                os.read(ready, 1)  # whoever kills it knows its number by then
                child(spec)
                code = 0
            finally:
                os._exit(code)
        os.close(ready)
        print(pid, flush=True)
        sys.stdin.readline()
        os.write(go, b"x")
        os.close(go)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    kind = importlib.import_module(sys.argv[1])
    for name in kind.PRELOADED:
        importlib.import_module(name)
    _serve(kind.child)
