"""The queue `orders` under a daemon: its config, jobs whose lease has lapsed, deaths that sweeps counted."""

from __future__ import annotations

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue
from tests.support.daemons import Site, wait_for
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "{state}"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}, ship_after: 1s}}
daemon: {{lease: {lease}}}
queues:
  orders:
    stalled: {{every: {every}, max_stalled: {max_stalled}}}
    dead: {{every: 1s, keep: {keep}, archive: true}}
    streams: {{completions: {{every: 500ms, keep: 3}}}}
"""


def config(valkey: Valkey, **changes: object) -> str:
    values = {
        "socket": valkey.socket,
        "state": "sqlite:///state.db",
        "lease": "2s",
        "every": "200ms",
        "max_stalled": 1,
        "keep": 2,
    }
    return CONFIG.format(**{**values, **changes})


def lapsed(server: Server, count: int, name: str = "orders") -> list[str]:
    """Jobs whose lease has lapsed."""
    q = Queue(server, name)
    minted = [ids.mint() for _ in range(count)]
    assert all(enqueue.enqueue_many(q, [enqueue.NewJob(job, b"x") for job in minted]))
    assert len(claims.claim_batch(q, 1, count)) == count
    claimed = server.now_ms(name)
    wait_for(lambda: server.now_ms(name) > claimed + 1)
    return minted


def dead_by_sweeps(here: Site) -> int:
    """How many deaths the runs of sweeps count, all together."""
    return sum((run["counts"] or {}).get("dead", 0) for run in here.json("runs", "ls") if run["kind"] == "sweep")
