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

from tests.support.effects import Effects

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


def drive(spec: Spec) -> dict[str, Any]:
    """Runs cycles of a driver: `url`, `queue`, `stream`, `local`, `remote`, `policy` (fields of Policy), `cycles`,
    `force`; `kill` for `Effects` (kinds ``commit`` and ``file``); `timeout` seconds a cycle; `interval` seconds between
    cycles, until the file `stop` is there."""
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
    told: dict[str, Any] = {"reports": [], "errors": []}
    with connect(spec["url"]) as server, open_local(spec["local"]) as local:
        remote = open_remote(spec["remote"], **spec.get("remote_options", {}))
        effects = Effects(spec.get("kill"), root)
        effects.watch(local.engine, "commit")
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
    effects.check()
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
