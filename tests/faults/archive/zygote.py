"""A process with everything imported that forks a driver's process for each run: so a kill costs milliseconds.

    zygote = Zygote()
    run = zygote.start(spec)      # a forked process runs `spec` (see `drive`)
    run.pid                       # for a proxy that kills it
    run.wait()                    # its outcome, None where it was killed

One run at a time; two hosts are two zygotes. It is a process of its own, without threads, since a fork of the test's
own process would copy the locks of its threads.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

Spec = dict[str, Any]


class Run:
    """One forked process."""

    def __init__(self, zygote: Zygote, pid: int, result: Path) -> None:
        self._zygote, self.pid, self._result = zygote, pid, result
        self.status: int | None = None

    def wait(self) -> dict[str, Any] | None:
        """What it said at its end; None where it was killed."""
        if self.status is None:
            self.status = int(self._zygote.read()["status"])
        if os.WIFSIGNALED(self.status):
            assert os.WTERMSIG(self.status) in (signal.SIGKILL, signal.SIGTERM), self.status
            return None
        told: dict[str, Any] = json.loads(self._result.read_text())
        assert "traceback" not in told, told["traceback"]
        return told

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


class Zygote:
    """The parent of runs."""

    def __init__(self) -> None:
        self._dir = tempfile.TemporaryDirectory(prefix="emqz-")
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.archive.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        assert self.read() == {"ready": True}

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the zygote ended"
        told: dict[str, Any] = json.loads(line)
        return told

    def start(self, spec: Spec) -> Run:
        self._count += 1
        result = Path(self._dir.name) / f"{self._count}.json"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**spec, "result": str(result)}).encode() + b"\n")
        self._process.stdin.flush()
        return Run(self, int(self.read()["pid"]), result)

    def run(self, spec: Spec) -> dict[str, Any] | None:
        return self.start(spec).wait()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._dir.cleanup()


class Effects:
    """Counts the effects that no proxy sees, before each of them: commits of the local database that change something
    (``commit``), files made, linked or removed in a directory remote (``file``). Kills its own process before the
    k-th, or, ``commit`` only, right after it."""

    def __init__(self, kill: dict[str, Any] | None, root: str | None) -> None:
        self.seen = {"commit": 0, "file": 0}
        self._kill = kill or {}
        self._root = root
        self._changed = self._committed = False

    def watch(self, engine: Any) -> None:
        from sqlalchemy import event

        event.listen(engine, "before_cursor_execute", self._statement)
        event.listen(engine, "commit", self._before_commit)
        event.listen(engine.pool, "checkin", self._after_commit)
        if self._root is not None:
            sys.addaudithook(self._audit)

    def _statement(self, _connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        self._changed |= sql.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE")

    def _before_commit(self, _connection: Any) -> None:
        if self._changed:
            self._changed, self._committed = False, True
            self._count("commit", "before")

    def _after_commit(self, *_: Any) -> None:
        if self._committed:
            self._committed = False
            if self._due("commit", "after"):
                os.kill(os.getpid(), signal.SIGKILL)

    def _audit(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "open":
            path, mode, flags = args
            if not (isinstance(mode, str) and set(mode) & set("wxa+")) and not (flags or 0) & (os.O_WRONLY | os.O_RDWR):
                return
            paths = [path]
        elif name in ("os.link", "os.rename", "os.remove", "os.mkdir", "shutil.rmtree"):
            paths = [a for a in args if isinstance(a, str | bytes)]
        else:
            return
        if self._root and any(isinstance(p, str | bytes) and os.fsdecode(p).startswith(self._root) for p in paths):
            self._count("file", "before")

    def _count(self, what: str, when: str) -> None:
        self.seen[what] += 1
        if self._due(what, when):
            os.kill(os.getpid(), signal.SIGKILL)

    def _due(self, what: str, when: str) -> bool:
        wanted = (self._kill.get("what"), self._kill.get("when", "before"), self._kill.get("at"))
        return wanted == (what, when, self.seen[what])


def drive(spec: Spec) -> dict[str, Any]:
    """Runs cycles of a driver: `url`, `queue`, `stream`, `local`, `remote`, `policy` (fields of Policy), `cycles`,
    `force`; `kill` for `Effects`; `timeout` seconds a cycle; `interval` seconds between cycles, until the file `stop`
    is there."""
    from emq_archive.deadline import Deadline
    from emq_archive.driver import Driver
    from emq_archive.local.store import open_local
    from emq_archive.model import Policy
    from emq_archive.ports import Fence
    from emq_archive.remote import open_remote
    from emq_archive.source import StreamSource
    from emq_ops.protocol.errors import EmqError
    from emq_ops.protocol.queue import Queue
    from emq_ops.protocol.server import connect

    root = spec["remote"].removeprefix("file:") if spec["remote"].startswith("file:") else None
    effects = Effects(spec.get("kill"), root)
    told: dict[str, Any] = {"reports": [], "errors": []}
    with connect(spec["url"]) as server, open_local(spec["local"]) as local:
        remote = open_remote(spec["remote"], **spec.get("remote_options", {}))
        effects.watch(local.engine)
        policy = Policy(**spec.get("policy", {}))
        writer = Fence(spec.get("state", "6b3f1c1e-0000-4000-8000-000000000001"), writer=f"host:{os.getpid()}")
        source = StreamSource(Queue(server, spec["queue"]), spec["stream"])
        driver = Driver(source, local, remote, policy, None, writer)
        for number in range(spec.get("cycles", 1)):
            if number and "interval" in spec:
                time.sleep(spec["interval"])
                if Path(spec["stop"]).exists():
                    break
            try:
                driver.cycle(Deadline.after(spec.get("timeout")), force=spec.get("force", True))
            except EmqError as fault:
                told["errors"].append([type(fault).__name__, str(fault)])
            told["reports"].append(driver.report.as_row())
        remote.close()
    told["effects"] = effects.seen
    return told


def _child(spec: Spec) -> None:
    import traceback

    told: dict[str, Any]
    try:
        told = drive(spec)
    except BaseException:
        told = {"traceback": traceback.format_exc()}
    Path(spec["result"]).write_text(json.dumps(told))


def main() -> None:
    import boto3

    import emq_archive.driver
    import emq_archive.local.store
    import emq_archive.remote
    import emq_archive.source

    boto3.session.Session().client("s3", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    with tempfile.TemporaryDirectory() as folder:
        emq_archive.local.store.open_local(f"sqlite:///{folder}/warm.db").close()
    gc.freeze()
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    out.write(b'{"ready": true}\n')
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _child(json.loads(line))
                code = 0
            finally:
                os._exit(code)
        out.write(json.dumps({"pid": pid}).encode() + b"\n")
        _, status = os.waitpid(pid, 0)
        out.write(json.dumps({"status": status}).encode() + b"\n")


if __name__ == "__main__":
    main()
