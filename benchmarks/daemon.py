"""A daemon of 1,000 queues with three tasks each: lateness, CPU, memory, start-up, and time from apply to effect.

Each queue begins with one record, which is folded at once and shipped a minute later: that work comes first, and its
cost is told apart. From then on all queues are idle, and the daemon's share of a core is that of looking. Lateness is
how late a run began; it is read from the ledger's marks. Last, the same queues beside one whose object store hangs.
Run it on a quiet machine; every number is of one run.

With ``--queues N``: that many queues instead, each with three tasks every 30 s, for ``--seconds``: leases lost, the
longest that a task waited for its run, the share of a core, and what the daemon said that it can't keep up with.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from emq_ops.cli.main import main as run_command
from emq_ops.ledger import marks
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from tests.support.faults import anything
from tests.support.http_proxy import HttpProxy
from tests.support.s3 import CREDENTIALS, S3Server
from tests.support.sizes import sized
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}, ship_after: {ship}}}
queues:
  "q-*":
    stalled: {{every: {stalled}}}
    dead: {{every: 10m, keep: 1000}}
    streams: {{completions: {{every: 5s, keep: 1000}}}}
"""
MANY = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
queues:
  "q-*":
    stalled: {{every: 30s}}
    dead: {{every: 30s, keep: 1000}}
    streams: {{completions: {{every: 30s, keep: 1000}}}}
"""
BESIDE = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {remote}, ship_after: 1ms}}
queues:
  "q-*": {{stalled: {{every: 5s}}}}
  other: {{streams: {{completions: {{every: 1s, keep: 1}}}}}}
"""
HUNG = '{{url: "s3://{bucket}/x", endpoint: "{url}", region: auto, timeout: 60s}}'
TASKS = ("stalled", "dead", "stream:completions")
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
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = run_command(["apply", "--yes"])
        if code:
            raise SystemExit(f"apply failed: {said.getvalue()}")
    finally:
        os.chdir(here)


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A daemon, ready."""
    (folder / "ready").unlink(missing_ok=True)
    daemon = subprocess.Popen(
        [sys.executable, "-m", "emq_ops.cli.main", "up", "--ready-file", "ready", "--log", "json"],
        cwd=folder,
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


def beside(server: Server, socket_path: Path, remote: str, seconds: float, proxy: HttpProxy | None = None) -> list[int]:
    """Lateness, after `seconds`, of queues beside one that ships its ten records to `remote`; `proxy`: before a remote
    that is to hang."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(10):
            server.write("XADD", Queue(server, "other").keys.stream("completions"), "*", "job", "x")
        (folder / "config.yaml").write_text(BESIDE.format(socket=socket_path, remote=remote))
        apply(folder)
        if proxy is not None:  # from now on nothing comes back (an apply asks the store)
            proxy.arm("hold", match=anything, times=sys.maxsize)
        daemon = start(folder)
        time.sleep(seconds)
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)
        if server.read("XLEN", Queue(server, "other").keys.stream("completions")) != (10 if proxy else 1):
            raise SystemExit("the store was not as it is measured")
        return lateness(folder, without="other")


def waits(folder: Path, runs: dict[tuple[str, str], set[int]]) -> None:
    """Adds to `runs` when each task's last run began, unix ms."""
    with open_ledger(f"sqlite:///{folder}/state.db") as ledger:
        for key, mark in marks.load(ledger).items():
            if mark.started_ms and mark.task in TASKS:
                runs.setdefault(key, set()).add(mark.started_ms)


def longest_waits(runs: dict[tuple[str, str], set[int]], count: int, since_ms: int, until_ms: int) -> list[float]:
    """The longest that each of `count` tasks went without a run, seconds, in order. What was not yet written at
    `until_ms` is no wait."""
    found = [(until_ms - since_ms) / 1000] * (count - len(runs))
    for begun in runs.values():
        instants = [since_ms, *sorted(begun)]
        found.append(max(after - before for before, after in itertools.pairwise(instants)) / 1000)
    return sorted(found)


def many(queues: int, seconds: float, *, records: bool) -> None:
    with Valkey() as valkey, connect(valkey.url) as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in range(queues):
            server.write("ZADD", Queue(server, f"q-{n:04}").keys.pending, 0, ids.mint())
        if records:
            seed(server, queues)
        (folder / "config.yaml").write_text(MANY.format(socket=valkey.socket))
        apply(folder)
        loads, begun_ms, began = [os.getloadavg()[0]], int(time.time() * 1000), time.perf_counter()
        daemon = start(folder)
        ready = time.perf_counter() - began
        runs: dict[tuple[str, str], set[int]] = {}
        shares: list[float] = []
        while (at := time.perf_counter()) < began + seconds:
            spent = cpu_seconds(daemon.pid)
            time.sleep(5)
            waits(folder, runs)
            shares.append((cpu_seconds(daemon.pid) - spent) / (time.perf_counter() - at))
            loads.append(os.getloadavg()[0])
        until_ms, peak, total = int(time.time() * 1000), memory_mib(daemon.pid), cpu_seconds(daemon.pid)
        daemon.send_signal(signal.SIGTERM)
        ended = time.perf_counter()
        code = daemon.wait(60)
        ended = time.perf_counter() - ended
        waits(folder, runs)
        events = Counter(json.loads(line)["event"] for line in (folder / "log").read_text().splitlines() if line)
        found = longest_waits(runs, 3 * queues, begun_ms, until_ms)
        late = sum(wait > 40 for wait in found)
        print(f"queues          {queues}, tasks {len(found)}, over {seconds:.0f} s")
        print(f"load            {min(loads):.1f} to {max(loads):.1f}, on {os.cpu_count()} cores")
        print(f"start to ready  {ready:8.2f} s")
        print(f"leases lost     {events['lease_lost']:8}   (0)")
        print(
            f"longest wait    p50 {statistics.median(found):.1f} s, p99 {found[int(len(found) * 0.99)]:.1f} s, ", end=""
        )
        never = sum(key not in runs for key in all_tasks(queues))
        print(f"most {found[-1]:.1f} s; {late} of over 40 s, {never} never run")
        print(
            f"CPU             {total / seconds:8.1%} of a core over all, by 5 s: {' '.join(f'{x:.0%}' for x in shares)}"
        )
        print(f"memory          {peak:8.0f} MiB at the peak")
        print(f"SIGTERM to end  {ended:8.2f} s, exit {code}")
        print(f"events          {dict(events.most_common(12))}")


def all_tasks(queues: int) -> list[tuple[str, str]]:
    return [(f"q-{n:04}", name) for n in range(queues) for name in TASKS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--records", action="store_true", help="with --queues: each has a record to fold and ship")
    args = sized(parser, queues=3, seconds=2.0, records=True)
    os.environ.update(CREDENTIALS)
    if args.smoke:
        idle(args.queues, args.seconds, hasty=True)
    if args.queues is not None:
        many(args.queues, args.seconds or 180, records=args.records)
    else:
        idle(1000, args.seconds or 60)


def idle(queues: int, seconds: float, *, hasty: bool = False) -> None:
    calm, ship, beside_s = (0, "1s", 3) if hasty else (15, "1m", 40)
    with Valkey() as valkey, connect(valkey.url) as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seed(server, queues)
        (folder / "config.yaml").write_text(CONFIG.format(socket=valkey.socket, stalled="30s", ship=ship))
        apply(folder)
        started = time.perf_counter()
        daemon = start(folder)
        ready = time.perf_counter() - started
        with open_ledger(f"sqlite:///{folder}/state.db") as ledger:
            # The first run of every task must be behind it: that is start-up, not idling.
            until = time.perf_counter() + 300
            while sum(mark.runs > 0 for mark in marks.load(ledger).values()) < 3 * queues:
                if time.perf_counter() > until:
                    raise SystemExit("not every task ran once within 300 s")
                time.sleep(1)
            settled, spent = time.perf_counter() - started, cpu_seconds(daemon.pid)
            until = time.perf_counter() + 300
            while shipped(folder) < queues:
                if time.perf_counter() > until:
                    raise SystemExit("not every queue's record was shipped within 300 s")
                time.sleep(1)
        shipping = cpu_seconds(daemon.pid) - spent
        time.sleep(calm)
        before, at = cpu_seconds(daemon.pid), time.perf_counter()
        time.sleep(seconds)
        share = (cpu_seconds(daemon.pid) - before) / (time.perf_counter() - at)
        late = lateness(folder)
        faster = CONFIG.format(socket=valkey.socket, stalled="30s", ship=ship) + "  q-0001: {stalled: {every: 500ms}}\n"
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
        print(f"queues        {queues}, tasks {len(late)}")
        print(f"start to ready {ready:8.2f} s")
        print(f"all ran once   {settled:8.2f} s   (3 first passes a queue, each with its rows in the ledger)")
        print(f"all shipped    {shipping / queues * 1000:8.1f} ms of CPU a queue, with looking meanwhile")
        print(f"lateness       {told(late)}   (p99 at most 1000 ms)")
        print(f"CPU            {share:8.1%} of a core, all idle   (at most 20 %)")
        print(f"memory         {peak:8.0f} MiB at the peak")
        print(f"apply to effect {effect:7.2f} s   (at most 2 s)")
        print(f"SIGTERM to end {time.perf_counter() - ended:8.2f} s, exit {code}")
        server.write("FLUSHALL")  # the leases of the state that is gone
        seed(server, queues)
        print(f"beside a store that answers  {told(beside(server, valkey.socket, '{url: file:bucket}', beside_s))}")
        server.write("FLUSHALL")
        seed(server, queues)
        with S3Server() as store, HttpProxy(store.url) as proxy:
            remote = HUNG.format(bucket=store.bucket(), url=proxy.url)
            print(f"beside one that hangs        {told(beside(server, valkey.socket, remote, beside_s, proxy))}")


if __name__ == "__main__":
    main()
