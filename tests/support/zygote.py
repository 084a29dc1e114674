"""Worker processes that cost milliseconds: one parent with everything imported forks a consumer whenever it is asked.

    with Zygote() as zygote:
        pid = zygote.fork(url, "orders", "tests.support.handlers:obedient", log=path, lease=300)
        ...
        assert zygote.wait(pid) == -signal.SIGKILL

The child connects to `url`, runs ``Consumer(...).run(until_idle=...)`` and exits 0; its events are appended to `log` as
JSON lines.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class Zygote:
    """The parent process, seen from a test."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.zygote"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        self._process.wait(20)
        self._process.stdout.close()  # type: ignore[union-attr]  # it is a pipe

    def fork(
        self, url: str, queue: str, handler: str, *, log: Path | None = None, until_idle: bool = True, **options: Any
    ) -> int:
        """A new consumer's pid."""
        job = {
            "url": url,
            "queue": queue,
            "handler": handler,
            "log": str(log) if log else None,
            "until_idle": until_idle,
        }
        return int(self._ask({**job, "options": options}))

    def wait(self, pid: int) -> int:
        """Its exit code, or minus the signal that ended it. Blocks."""
        return int(self._ask({"wait": pid}))

    def _ask(self, request: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the zygote is gone"
        return answer


def events_of(log: Path) -> list[dict[str, Any]]:
    """What a child told so far: ``kind`` and the fields as text."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]


def _child(request: dict[str, Any]) -> int:
    from emq_ops.protocol.queue import Queue
    from emq_ops.protocol.server import connect
    from emq_ops.worker import Backoff, Consumer, ConsumerSettings, load_handler
    from emq_ops.worker.events import WorkerEvent

    log = os.open(request["log"] or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(event: WorkerEvent) -> None:
        fields = {name: str(getattr(event, name)) for name in event.__dataclass_fields__}
        os.write(log, (json.dumps({"kind": type(event).__name__, **fields}) + "\n").encode())

    options = request["options"]
    if "backoff" in options:
        options["backoff"] = Backoff(**options["backoff"])
    with connect(request["url"]) as server:
        consumer = Consumer(
            Queue(server, request["queue"]),
            load_handler(request["handler"]),
            ConsumerSettings(**options),
            on_event=tell,
        )
        report = consumer.run(signals=True, until_idle=request["until_idle"])
    return 1 if report.abandoned else 0


def _serve() -> None:
    # Everything a child needs is imported before the first fork.
    for module in ("emq_ops.protocol.server", "emq_ops.worker", "tests.support.handlers"):
        importlib.import_module(module)
    alive: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            status = os.waitpid(request["wait"], 0)[1]
            alive.discard(request["wait"])
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                os.close(0)
                code = _child(request)
            finally:
                os._exit(code)
        alive.add(pid)
        print(pid, flush=True)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    _serve()
