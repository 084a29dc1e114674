"""``audit dead`` over very many dead jobs: bounded groups, flat memory, lists written as they come."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from emq_ops.audit.dead import MOST_GROUPS, audit_dead
from emq_ops.cli.output import emit_rows
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.cli import emq
from tests.support.passing import dead_of
from tests.support.valkey import Valkey


def test_groups_are_bounded(server: Server) -> None:
    q = Queue(server, "orders")
    made = [ids.mint() for _ in range(MOST_GROUPS + 50)]
    for n, job in enumerate(made):
        word = "".join(chr(97 + int(d)) for d in str(n))
        server.write(
            "HSET", q.keys.row(job), "state", "dead", "attempts", 1, "payload", "x", "last_error", f"odd {word}"
        )
        server.write("ZADD", q.keys.dead, 0, job)
    audit = audit_dead(server, ["orders"], DeadSelection())
    assert len(audit.groups) == MOST_GROUPS + 1
    assert sum(group.jobs for group in audit.groups.values()) == len(made)
    assert "different error texts" in audit.notes[-1]


BURY = """
for i = 2, #ARGV do
  redis.call('HSET', ARGV[1] .. 'job:' .. ARGV[i], 'attempts', '1', 'payload', 'x', 'state', 'dead',
    'last_error', string.rep('e', 300) .. ' ' .. i)
  redis.call('ZADD', KEYS[1], 0, ARGV[i])
end
"""


def bury(valkey: Valkey, q: Queue, count: int) -> None:
    """Many dead jobs, quickly."""
    with valkey.client() as client:
        for first in range(0, count, 5000):
            made = [ids.mint() for _ in range(min(5000, count - first))]
            client.eval(BURY, 1, q.keys.dead, q.keys.base, *made)


def test_memory_is_flat(server: Server, valkey: Valkey) -> None:
    """Many times the dead jobs, no more memory."""
    q = Queue(server, "orders")
    peaks = []
    for count in (2_500, 7_500):  # several pages each
        bury(valkey, q, count)
        audit_dead(server, ["orders"], DeadSelection())
        tracemalloc.start()
        audit_dead(server, ["orders"], DeadSelection())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.5


class Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


@pytest.mark.parametrize("output", ["json", "jsonl", "csv"])
def test_lists_are_written_as_they_come(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Nowhere())
    collected = gc.isenabled()
    gc.enable()  # as in a process that is no test
    tracemalloc.start()
    emit_rows(({"job": n, "error": "x" * 5_000} for n in range(3_000)), output, ("job", "error"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if not collected:
        gc.disable()
    assert peak < 3_000 * 5_000 / 2  # some of it, until the collector comes round


def test_a_list_of_several_pages(server: Server, valkey: Valkey) -> None:
    bury(valkey, Queue(server, "orders"), 1_100)
    wanted = dead_of(Queue(server, "orders"))

    def listed(output: str, *argv: str, code: int = 0) -> str:
        ran = emq("audit", "dead", "orders", "--list", "--url", valkey.url, "--output", output, *argv)
        assert ran.code == code, ran
        return ran.out

    text = listed("json")
    rows = json.loads(text)
    assert [row["job"] for row in rows] == wanted
    assert text == json.dumps(rows, indent=2) + "\n"
    lines = listed("table").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("orders")] == wanted
    assert sum(line.startswith("queue") for line in lines) == 1
    for output in ("json", "jsonl", "csv", "table"):
        assert listed(output, "--cause", "flow", code=4) == ""  # refused before a word is written


@pytest.mark.soak(minutes=3)
def test_a_million_dead(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    """A command's peak memory is that of a hundredth of it, and a bit for the server's pages."""
    q = Queue(server, "orders")
    told: list[tuple[float, int]] = []
    for count in (10_000, 990_000):
        bury(valkey, q, count)
        argv = ("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--output", "json")
        begun = time.monotonic()
        with subprocess.Popen([sys.executable, "-m", "emq_ops.cli.main", *argv], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            document = json.loads(process.stdout.read())
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        told.append((time.monotonic() - begun, usage.ru_maxrss // 1024))
        assert process.returncode == 0
    assert (document["dead"], len(document["groups"])) == (1_000_000, 1)
    print("seconds and MiB of 10,000 and of 1,000,000:", told)
    assert told[1][1] < told[0][1] + 16
