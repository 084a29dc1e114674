"""A process with everything imported that forks a child for each pass, so that killing one costs milliseconds.

    with PassZygote() as zygote:
        code = zygote.run(what="sweep", url=..., state=..., kill=["commit", "before", 3])
        assert code == -signal.SIGKILL

`kill`: the child kills itself before or after its k-th commit of the ledger; a proxy kills it at a request. `commits`:
a file that says how many commits there were.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[3]
QUEUE = "mail"


class PassZygote:
    """The parent, seen from a test; one child at a time."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.passes.zygote"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
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
        """The exit code of the child, or minus the signal that ended it."""
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


def _watch(engine: Any, kill: list[Any], commits: str | None) -> None:
    from sqlalchemy import event

    seen = {"commits": 0}

    def before(_connection: Any) -> None:
        seen["commits"] += 1
        if kill == ["commit", "before", seen["commits"]]:
            os.kill(os.getpid(), signal.SIGKILL)

    def after(*_: Any) -> None:
        if kill == ["commit", "after", seen["commits"]]:
            os.kill(os.getpid(), signal.SIGKILL)
        if commits:
            Path(commits).write_text(str(seen["commits"]))

    event.listen(engine, "commit", before)
    event.listen(engine.pool, "checkin", after)  # the commit is done when the connection comes back


def one_pass(what: str, server: Any, ledger: Any, lease_ms: int = 15_000) -> dict[str, Any]:
    """The pass that is killed, and the next one."""
    from emq_ops.passes.once import run_once
    from emq_ops.passes.policy import DeadPolicy, StalledPolicy
    from emq_ops.passes.sweep import sweep
    from emq_ops.passes.trim import trim

    stalled = StalledPolicy(max_stalled=2, limit=2, max_exempt=1)
    dead = DeadPolicy(keep=3, slice=1)

    def run(fence: Any) -> Any:
        if what == "sweep":
            return sweep(server, QUEUE, stalled, ledger, fence)
        return trim(server, QUEUE, dead, ledger, fence)

    return run_once(server, ledger, QUEUE, what, run, {}, lease_ms=lease_ms)


def _child(spec: dict[str, Any]) -> None:
    from emq_ops.ledger.ledger import open_ledger
    from emq_ops.protocol.server import connect

    with connect(spec["url"]) as server, open_ledger(spec["state"]) as ledger:
        _watch(ledger.engine, spec.get("kill", []), spec.get("commits"))
        one_pass(spec["what"], server, ledger, spec.get("lease_ms", 15_000))


def _serve() -> None:
    import emq_ops.passes.once
    import emq_ops.passes.sweep
    import emq_ops.passes.trim
    import emq_ops.protocol.server  # noqa: F401

    for line in sys.stdin:
        spec = json.loads(line)
        ready, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                os.close(0)
                os.close(go)
                os.read(ready, 1)
                _child(spec)
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
    _serve()
