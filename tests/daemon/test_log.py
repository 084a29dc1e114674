"""A log at rest: what a minute did is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.daemon.digest import Digest, Summary
from emq_ops.daemon.log import EventLog
from emq_ops.passes.events import Event, PassEnded
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.daemons import site, wait_for
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
archive: {{remote: {{url: "file:.emq/bucket"}}, ship_after: 100ms}}
queues:
  orders: {{streams: {{completions: {{every: 100ms}}}}}}
"""


def test_passes_that_do_their_work_are_one_line_a_minute(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    key = Queue(server, "orders").keys.stream("completions")
    with site(tmp_path, CONFIG.format(url=valkey.url)) as here:
        here.run("apply", "--yes")
        daemon = here.up(verbose=False)
        for n in range(5):
            server.write("XADD", key, f"{1_796_000_000_000 + n}-0", "job", f"j{n}")
            wait_for(lambda n=n: here.json("archive", "status", "orders", "completions")["unshipped"] == 0)
            wait_for(lambda n=n: here.json("archive", "status", "orders", "completions")["remote_records"] == n + 1)
        daemon.stop()
        assert daemon.events("pass_ended") == []
        [summary] = daemon.events("summary")
        assert summary["counts"]["archive.shipped"] == 5
        assert summary["passes"]["archive"] >= 5


def test_what_failed_keeps_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    log, told_of = EventLog("json"), list[Event]()
    digest = Digest(lambda event: (log(event), told_of.append(event)))  # type: ignore[func-returns-value]
    for status in ("done", "done", "failed", "stopped"):
        event = PassEnded("orders", "RUN1", kind="sweep", status=status, counts={"recovered": 2})
        digest(event)
    told = [line for line in capsys.readouterr().err.splitlines() if "pass_ended" in line]
    assert len(told) == 2
    assert '"failed"' in told[0]
    assert '"stopped"' in told[1]
    digest.tell(waiting=1, running=2)
    summary = told_of[-1]
    assert isinstance(summary, Summary)
    assert summary.passes == {"sweep": 2, "sweep.failed": 1, "sweep.stopped": 1}
    assert summary.counts == {"sweep.recovered": 8}
    digest.tell(waiting=0, running=0)
    assert told_of[-1].facts()["passes"] == {}
