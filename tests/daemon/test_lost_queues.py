"""Queues that only a glob takes, on a server that comes back without them: what was in them is told."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import enqueue, reads
from tests.support.daemons import Site, site, wait_for
from tests.support.orders import lapsed
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
daemon: {{lease: 1s}}
queues:
  "mail-*": {{optional: true, stalled: {{every: 3s, max_stalled: 1}}}}
"""
NAMES = ("mail-a", "mail-b")


def filled(valkey: Valkey, here: Site) -> dict[str, str]:
    """A dead job in each queue, known to the ledger."""
    here.run("apply", "--yes")
    with connect(valkey.url) as server:
        jobs = {name: lapsed(server, 1, name)[0] for name in NAMES}
        here.run("up", "--once")
        assert all(reads.counts(Queue(server, name)).dead == 1 for name in NAMES)
    assert [vanished(here, name) for name in NAMES] == [[], []]  # none yet, which is no error
    return jobs


def come_back_without(valkey: Valkey) -> None:
    """The server forgets everything; then one of the queues has a job again."""
    valkey.restart()
    with connect(valkey.url) as server:
        enqueue.enqueue(Queue(server, NAMES[0]), ids.mint(), b"x")


def vanished(here: Site, queue: str) -> list[str]:
    found = here.json("audit", "restarts", queue)["interruptions"]
    return [job for cut in found for job in cut["jobs"].get("vanished", [])]


@pytest.mark.parametrize("by", ["daemon", "once"])
def test_what_was_in_a_queue_that_is_gone_is_told(tmp_path: Path, by: str) -> None:
    with Valkey() as valkey, site(tmp_path / "s", CONFIG.format(socket=valkey.socket)) as here:
        jobs = filled(valkey, here)
        if by == "daemon":
            daemon = here.up()
            wait_for(lambda: all(row["runs"] for row in here.json("ps")))
            come_back_without(valkey)
            daemon.signal(signal.SIGHUP)  # the queues of the server are looked at anew
            wait_for(lambda: len(daemon.events("interruption_seen")) == 2)
            wait_for(lambda: vanished(here, NAMES[1]))
            daemon.stop()
        else:
            come_back_without(valkey)
            wait_for(lambda: here.run("up", "--once") and vanished(here, NAMES[0]))  # once the sweeps are due again
        assert {name: vanished(here, name) for name in NAMES} == {name: [job] for name, job in jobs.items()}
