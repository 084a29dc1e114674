"""Processes that cost milliseconds: one parent that has imported what they need forks a child for each.

    child = zygote.start("tests.faults.passes.run_pass", what="sweep", url=..., state=...)
    child.signal(signal.SIGSTOP)
    assert child.wait() == 0
    assert zygote.run("tests.passes.acts.run_act", kill=["commit", "before", 3], ...) == -signal.SIGKILL

What a child does is a module of the tests: its ``child(spec)``, whose return value is the child's `result`. The parent
imports it, with all that it imports, before its first fork for it, and calls its ``warm()``, if there is one. What a
child had to import beyond that, the parent imports when it ended, however it did, for those that come after it.

The parent is a process of its own, since a fork of the test's process would copy the locks of its threads.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any, Self

from tests.support.states import keep_compiled, keep_schemas

ROOT = Path(__file__).parents[2]
RAISED = 70
"""The exit code of a child that raised."""
WAIT_SECONDS = 120.0
FORK_SAFE = {"jemalloc_bg_thd"}
"""Threads of libraries that see to forks themselves (pyarrow's allocator)."""


class Child:
    """One forked process, as its test sees it. It begins only when the test knows its pid."""

    def __init__(self, zygote: Zygote, pid: int, told: Path) -> None:
        self._zygote, self.pid, self._told = zygote, pid, told
        self._fd = os.pidfd_open(pid)
        self._code: int | None = None

    def poll(self, seconds: float = 0) -> int | None:
        """The exit code (RAISED: it raised), minus the signal that ended it, or None where it still runs after
        `seconds`."""
        if self._code is None:
            ended = select.poll()
            ended.register(self._fd, select.POLLIN)
            if ended.poll(seconds * 1000):
                self._code = int(self._zygote.ask(reap=self.pid))
                os.close(self._fd)
        return self._code

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """The same, once it ended; fails after `seconds`."""
        code = self.poll(seconds)
        assert code is not None, f"process {self.pid} still runs after {seconds} s"
        return code

    def signal(self, number: int) -> None:
        """Sends it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def result(self) -> Any:
        """What ``child(spec)`` returned; None where a signal ended it. Fails with the traceback of one that raised."""
        if self.wait() < 0:
            return None
        told = json.loads(self._told.read_text())
        assert "traceback" not in told, told["traceback"]
        return told["result"]


class Zygote:
    """The parent, as a test sees it. `last`: its latest child. Any number of them run at once."""

    def __enter__(self) -> Self:
        self._dir = tempfile.TemporaryDirectory(prefix="emqz-")
        self._count = 0
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.last: Child | None = None
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)
        self._dir.cleanup()

    def start(self, module: str, **spec: Any) -> Child:
        """Forks a child that runs ``child(spec)`` of the module."""
        self._count += 1
        told = Path(self._dir.name) / str(self._count)
        self.last = Child(self, int(self.ask(fork=module, spec=spec, told=str(told))), told)
        self.ask(go=self.last.pid)
        return self.last

    def run(self, module: str, **spec: Any) -> int:
        """Runs a child to its end; its exit code."""
        return self.start(module, **spec).wait()

    def pid(self) -> int:
        """Of the latest child, for a proxy that kills it."""
        assert self.last is not None
        return self.last.pid

    def ask(self, **request: Any) -> str:
        """One request to the parent, and its reply."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            reply = self._process.stdout.readline()
        assert reply, "the zygote is gone"
        return reply


@functools.cache
def shared() -> Zygote:
    """The one of this test process; gone when it ends."""
    zygote = Zygote().__enter__()
    atexit.register(zygote.__exit__)
    return zygote


class _Parent:
    """The parent's own side."""

    def __init__(self) -> None:
        # Whatever prints (an import, a child) prints to stderr; replies have a file of their own.
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._modules: dict[str, Any] = {}
        self._gates: dict[int, int] = {}
        self._told: dict[int, Path] = {}
        self._tried: set[str] = set()

    def serve(self) -> None:
        for line in sys.stdin:
            request = json.loads(line)
            if "fork" in request:
                reply = self._fork(request)
            elif "go" in request:
                reply = os.write(gate := self._gates.pop(request["go"]), b"x")
                os.close(gate)
            else:
                reply = self._reap(request["reap"])
            print(reply, file=self._out)
        for pid in self._told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _fork(self, request: dict[str, Any]) -> int:
        name, told = request["fork"], Path(request["told"])
        if name not in self._modules:
            self._modules[name] = importlib.import_module(name)
            getattr(self._modules[name], "warm", lambda: None)()
            self._settle(name)
        opened, gate = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(0)
            os.close(gate)
            os.open(os.devnull, os.O_RDONLY)
            os.read(opened, 1)
            _run(self._modules[name], request["spec"], told)
        os.close(opened)
        self._gates[pid] = gate
        self._told[pid] = told
        return pid

    def _reap(self, pid: int) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        told = self._told.pop(pid)
        noted = told.with_suffix(".imports")
        looked_for = noted.read_text().split() if noted.exists() else []  # not if it was killed before it began
        needed = [name for name in looked_for if name not in self._tried and name not in sys.modules]
        self._tried.update(needed)
        for name in needed:
            with contextlib.suppress(ImportError):  # one that is not there, or takes its place by itself
                importlib.import_module(name)
        if needed:
            self._settle(f"one of {needed}")
        return code

    @staticmethod
    def _settle(what: str) -> None:
        """After imports: nothing that a fork must not copy, nothing that it would copy for nothing."""
        tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
        threads = [(task / "comm").read_text().strip() for task in tasks]
        assert set(threads) <= FORK_SAFE, f"{what} began threads, whose locks a fork would copy: {threads}"
        gc.collect()
        gc.freeze()  # or each child's first collection would copy all that is shared


class _Noting:
    """Finds no module, and notes what was looked for, at once: a child that is killed had to import things too."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def find_spec(self, name: str, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, f"{name}\n".encode())


def _run(module: Any, spec: dict[str, Any], told: Path) -> None:
    """The child's side; does not return."""
    code, said = RAISED, dict[str, Any]()
    sys.meta_path.insert(0, _Noting(told.with_suffix(".imports")))
    try:
        said["result"] = module.child(spec)
        code = 0
    except SystemExit as ended:
        said["result"] = None
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
        said["traceback"] = traceback.format_exc()
    finally:
        part = told.with_suffix(".part")
        part.write_text(json.dumps(said))
        part.rename(told)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    keep_schemas()
    keep_compiled()
    _Parent().serve()
