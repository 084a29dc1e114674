"""A daemon of 1,000 queues with three tasks each: lateness, CPU, memory, start-up, and time from apply to effect.

Each queue begins with one record, which is folded at once and shipped a minute later: that work comes first, and its
cost is told apart. From then on all queues are idle, and the daemon's share of a core is that of looking. Lateness is
how late a run began; it is read from the ledger's marks. Last, the same queues beside one whose object store hangs.
Run it on a quiet machine; every number is of one run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from emq_ops.cli.main import main as run_command
from emq_ops.ledger import marks
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
queues:
  "q-*":
    stalled: {{every: {stalled}}}
    dead: {{every: 10m, keep: 1000}}
    streams: {{completions: {{every: 5s, keep: 1000}}}}
"""
BESIDE = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {remote}, ship_after: 1ms}}
queues:
  "q-*": {{stalled: {{every: 5s}}}}
  other: {{streams: {{completions: {{every: 1s, keep: 1}}}}}}
"""
HUNG = '{{url: "s3://bucket/x", endpoint: "http://127.0.0.1:{port}", region: auto, timeout: 60s}}'
KEYS = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing"}
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int) -> float:
    line = next(s for s in Path(f"/proc/{pid}/status").read_text().splitlines() if s.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def seed(server: Server, count: int) -> None:
    for n in range(count):
        q = Queue(server, f"q-{n:04}")
        server.write("XADD", q.keys.stream("completions"), "1796000000000-0", "job", "x")
        server.write("HSET", q.keys.completed, "count", 1)


def shipped(folder: Path) -> int:
    """How many commits are in the bucket: one of each queue, once all of them have shipped."""
    return sum(1 for _ in (folder / "bucket").glob("log/*/*/*.json"))


def apply(folder: Path) -> None:
    here = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = run_command(["apply", "--yes"])
        if code:
            raise SystemExit("apply failed")
    finally:
        os.chdir(here)


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A daemon, ready."""
    (folder / "ready").unlink(missing_ok=True)
    daemon = subprocess.Popen(
        [sys.executable, "-m", "emq_ops.cli.main", "up", "--ready-file", "ready", "--log", "json"],
        cwd=folder,
        env={**os.environ, **KEYS},
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("wb"),
    )
    while not (folder / "ready").exists():
        if daemon.poll() is not None:
            raise SystemExit((folder / "log").read_text())
        time.sleep(0.01)
    return daemon


def lateness(folder: Path, *, without: str = "") -> list[int]:
    """How late the last run of each task began, ms, in order."""
    with open_ledger(f"sqlite:///{folder}/state.db") as ledger:
        return sorted(mark.late_ms for mark in marks.load(ledger).values() if mark.queue != without)


def told(late: list[int]) -> str:
    return f"p50 {statistics.median(late):.0f} ms, p99 {late[int(len(late) * 0.99)]} ms, most {late[-1]} ms"


def beside(server: Server, socket_path: Path, remote: str, left: int) -> list[int]:
    """Lateness of queues beside one that ships to `remote`, and keeps `left` of ten records by that."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(10):
            server.write("XADD", Queue(server, "other").keys.stream("completions"), "*", "job", "x")
        (folder / "config.yaml").write_text(BESIDE.format(socket=socket_path, remote=remote))
        apply(folder)
        daemon = start(folder)
        time.sleep(40)
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)
        if server.read("XLEN", Queue(server, "other").keys.stream("completions")) != left:
            raise SystemExit("the store was not as it is measured")
        return lateness(folder, without="other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    with Valkey() as valkey, connect(valkey.url) as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seed(server, args.queues)
        (folder / "config.yaml").write_text(CONFIG.format(socket=valkey.socket, stalled="30s"))
        apply(folder)
        started = time.perf_counter()
        daemon = start(folder)
        ready = time.perf_counter() - started
        with open_ledger(f"sqlite:///{folder}/state.db") as ledger:
            # The first run of every task must be behind it: that is start-up, not idling.
            until = time.perf_counter() + 300
            while sum(mark.runs > 0 for mark in marks.load(ledger).values()) < 3 * args.queues:
                if time.perf_counter() > until:
                    raise SystemExit("not every task ran once within 300 s")
                time.sleep(1)
            settled, spent = time.perf_counter() - started, cpu_seconds(daemon.pid)
            until = time.perf_counter() + 300
            while shipped(folder) < args.queues:
                if time.perf_counter() > until:
                    raise SystemExit("not every queue's record was shipped within 300 s")
                time.sleep(1)
        shipping = cpu_seconds(daemon.pid) - spent
        time.sleep(15)
        before, at = cpu_seconds(daemon.pid), time.perf_counter()
        time.sleep(args.seconds)
        share = (cpu_seconds(daemon.pid) - before) / (time.perf_counter() - at)
        late = lateness(folder)
        faster = CONFIG.format(socket=valkey.socket, stalled="30s") + "  q-0001: {stalled: {every: 500ms}}\n"
        (folder / "config.yaml").write_text(faster)
        q = Queue(server, "q-0001")
        job = ids.mint()
        server.write("HSET", q.keys.row(job), "state", "active", "attempts", "1", "payload", "x")
        server.write("ZADD", q.keys.active, server.now_ms(q.name) - 1000, job)
        apply(folder)
        applied = time.perf_counter()
        while not server.read("ZSCORE", q.keys.dead, job):
            time.sleep(0.01)
        effect = time.perf_counter() - applied
        peak = memory_mib(daemon.pid)
        daemon.send_signal(signal.SIGTERM)
        ended = time.perf_counter()
        code = daemon.wait(30)
        print(f"queues        {args.queues}, tasks {len(late)}")
        print(f"start to ready {ready:8.2f} s")
        print(f"all ran once   {settled:8.2f} s   (3 first passes a queue, each with its rows in the ledger)")
        print(f"all shipped    {shipping / args.queues * 1000:8.1f} ms of CPU a queue, with looking meanwhile")
        print(f"lateness       {told(late)}   (p99 at most 1000 ms)")
        print(f"CPU            {share:8.1%} of a core, all idle   (at most 20 %)")
        print(f"memory         {peak:8.0f} MiB at the peak")
        print(f"apply to effect {effect:7.2f} s   (at most 2 s)")
        print(f"SIGTERM to end {time.perf_counter() - ended:8.2f} s, exit {code}")
        server.write("FLUSHALL")  # the leases of the state that is gone
        seed(server, args.queues)
        print(f"beside a store that answers  {told(beside(server, valkey.socket, '{url: file:bucket}', 1))}")
        server.write("FLUSHALL")
        seed(server, args.queues)
        with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections, and never says a word
            remote = HUNG.format(port=mute.getsockname()[1])
            print(f"beside one that hangs        {told(beside(server, valkey.socket, remote, 10))}")


if __name__ == "__main__":
    main()
