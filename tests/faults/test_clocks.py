"""A host whose clock is an hour off: leases, ages, holds and maintenance windows go by the server's."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.daemons import site
from tests.support.passing import add, dead_of, stall, take
from tests.support.valkey import Valkey

HOUR_MS = 3_600_000
CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
maintenance: [{{queues: mail, from: "{start}", to: "{until}"}}]
queues:
  mail: {{stalled: {{max_stalled: 1}}}}
  orders: {{stalled: {{max_stalled: 1}}, dead: {{max_age: 30m, archive: false}}}}
"""


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


@pytest.mark.parametrize("hours", [-1, 1], ids=["behind", "ahead"])
def test_passes_go_by_the_servers_clock(
    tmp_path: Path, valkey: Valkey, server: Server, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    now = server.now_ms("mail")
    text = CONFIG.format(socket=valkey.socket, start=iso(now - 600_000), until=iso(now + 2 * HOUR_MS))
    mail, orders = Queue(server, "mail"), Queue(server, "orders")
    with site(tmp_path / "s", text) as here:
        monkeypatch.setattr(ids, "_process_minter", ids.Minter())  # one that was ahead stays so, for other tests too
        real_ns, real = time.time_ns, time.time
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + hours * HOUR_MS * 1_000_000)
        monkeypatch.setattr(time, "time", lambda: real() + hours * HOUR_MS / 1000)
        in_window, others = stall(mail, 2), stall(orders, 2)
        add(orders)
        take(orders, 1, 30 * 60_000)  # a lease that stands, also for a host an hour ahead
        assert here.json("sweep", "mail")["exempted_jobs"] == in_window
        assert here.json("sweep", "orders")["dead_jobs"] == others
        assert reads.counts(orders).active == 1
        assert here.json("trim", "orders")["victim_jobs"] == []
        assert dead_of(orders) == others
        before = server.now_ms("orders")
        held = here.json("hold", "orders", "--for", "2m")
        until = held["until_ms"] if isinstance(held, dict) else held[0]["until_ms"]
        assert before + 120_000 <= until <= server.now_ms("orders") + 120_000
        [window] = here.json("maintenance", "ls")
        assert window["open"] is True
