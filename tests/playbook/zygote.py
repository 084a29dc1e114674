"""A process with everything imported that forks a child for each run of a playbook, so that killing one is cheap.

    with PlayZygote() as zygote:
        assert zygote.run(url=..., state=..., book=..., kill=["commit", "before", 3]) == -signal.SIGKILL

`kill`: the child kills itself before or after its k-th commit of the ledger; requests are killed at by a proxy.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class PlayZygote:
    """The parent, seen from a test; one child at a time."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.playbook.zygote"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = 0
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the zygote is gone"
        return json.loads(line)

    def run(self, **spec: Any) -> int:
        """Runs a child to its end; answers its exit code, or minus the signal. `pid` is set meanwhile."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(spec) + "\n")
        self._process.stdin.flush()
        self.pid = int(self._read())
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return int(self._read())

    def current(self) -> int:
        """The pid of the child, for a proxy that kills it."""
        return self.pid


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
    event.listen(engine.pool, "checkin", after)


def _child(spec: dict[str, Any]) -> None:
    from emq_ops.ledger.ledger import open_ledger
    from emq_ops.playbook.context import Ops
    from emq_ops.playbook.play import Options, prepare, resume
    from emq_ops.protocol.server import connect

    with connect(spec["url"]) as server, open_ledger(spec["state"]) as ledger:
        _watch(ledger.engine, spec.get("kill", []), spec.get("commits"))
        ops = Ops(server, ledger)
        if "run" in spec:
            opened = resume(ops, spec["run"], environment={})
        else:
            opened = prepare(ops, spec["book"], Options(), environment={})
        with opened as ready:
            ready.runner.run()


def _serve() -> None:
    import emq_ops.playbook.play
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
