"""Workers, a daemon that archives, and `doctor --fix` on a real Cluster whose slots move and whose primaries change:
every job is worked, and every settlement archived once."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from emq_ops.audit.doctor.examination import examine
from emq_ops.audit.doctor.mend import mend
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.slots import slot
from emq_ops.protocol.transitions.enqueue import enqueue
from emq_ops.protocol.transitions.reads import counts
from emq_ops.worker import Consumer, ConsumerSettings
from tests.support.cluster import Cluster, ask, replication, until
from tests.support.daemons import Site, site, wait_for
from tests.support.moving import Move

QUEUES = ("orders", "mail", "bulk")
CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}, ship_after: 1s}}
daemon: {{lease: 3s}}
defaults:
  stalled: {{every: 1s, max_stalled: 3}}
queues:
{queues}
"""


def in_step(cluster: Cluster) -> bool:
    """Every primary has its replica, so that a failover that is asked for loses nothing."""
    roles = [replication(node) for node in cluster.nodes]
    return all(found["role"] == "master" or found.get("master_link_status") == "up" for found in roles)


def agreed(cluster: Cluster) -> bool:
    """Whether all nodes name the same owners."""
    tables = [
        sorted((first, last, port) for first, last, (_, port, *_), *_ in ask(node, "CLUSTER", "SLOTS"))
        for node in cluster.nodes
    ]
    return all(table == tables[0] for table in tables)


def stir(cluster: Cluster, chance: random.Random) -> str:
    """One move or failover; returns which."""
    queue = chance.choice(QUEUES)
    kind = chance.choice(["step by step", "atomic", "turned back", "failover"])
    if kind == "failover":
        cluster.fail_over(slot(keys_of(queue).base))
        return kind
    move = Move(cluster, queue)
    if kind == "atomic":
        move.atomic()
        return kind
    move.begin()
    if kind == "step by step":
        names = list(ask(move.source, "CLUSTER", "GETKEYSINSLOT", move.slot, 1000))
        chance.shuffle(names)
        for name in names[: chance.randint(0, len(names))]:
            move.carry(name)
    time.sleep(chance.uniform(0.1, 1.0))
    move.finish() if kind == "step by step" else move.turn_back()
    return kind


def heal(server: Server, over: threading.Event, mended: Counter[str]) -> None:
    """`doctor --fix`, again and again. In a healthy queue there is nothing to mend, wherever its keys are."""
    while not over.is_set():
        with contextlib.suppress(EmqError):
            found = examine(server, QUEUES).findings
            mended.update(one.finding.kind for one in mend(server, found) if one.outcome == "mended")
        over.wait(0.05)  # the pace of its looks


def move_on(cluster: Cluster, chance: random.Random, seconds: float, done: Counter[str]) -> None:
    """Moves and failovers for so long; `done` counts them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done[stir(cluster, chance)] += 1
        until("the nodes agree", lambda: agreed(cluster) and in_step(cluster))


def archived(here: Site, name: str) -> Counter[str]:
    """How often each job stands in the archive and the live stream together."""
    found = here.json("archive", "query", name, "completions", "select job, count(*) as n from records group by job")
    return Counter({row["job"]: int(row["n"]) for row in found})


@pytest.mark.long
@pytest.mark.parametrize("seconds", [6, pytest.param(240, marks=pytest.mark.soak(minutes=4))])
def test_nothing_is_lost_or_doubled_while_slots_move_and_primaries_change(tmp_path: Path, seconds: int) -> None:
    chance = random.Random(24)
    queues = "\n".join(f"  {name}: {{streams: {{completions: {{every: 500ms, keep: 20}}}}}}" for name in QUEUES)
    with (
        Cluster(replicas=3, cluster_allow_replica_migration="no") as cluster,
        connect(cluster.url) as server,
        site(tmp_path / "s", CONFIG.format(url=cluster.url, queues=queues)) as here,
    ):
        put: dict[str, list[str]] = {name: [] for name in QUEUES}
        worked: Counter[str] = Counter()
        for name in QUEUES:
            put[name].append(job := mint())
            enqueue(Queue(server, name), job, b"x")
        here.run("apply", "--yes")
        daemon = here.up()
        settings = ConsumerSettings(lease=6_000, recovery="none", concurrency=2)
        consumers = [
            Consumer(Queue(server, name), lambda job: worked.update([job.id]), settings, on_event=lambda _event: None)
            for name in QUEUES
        ]
        over, mended = threading.Event(), Counter[str]()
        doctor = threading.Thread(target=heal, args=(server, over, mended))
        with contextlib.ExitStack() as stack:
            for consumer in consumers:
                stack.enter_context(consumer)
            doctor.start()
            done: Counter[str] = Counter()
            mover = threading.Thread(target=move_on, args=(cluster, chance, seconds, done))
            mover.start()
            while mover.is_alive():
                for name in QUEUES:
                    job = mint()
                    with contextlib.suppress(EmqError):
                        enqueue(Queue(server, name), job, b"x")
                    put[name].append(job)  # it may be there even so
                time.sleep(0.02)
            mover.join()
            over.set()
            doctor.join()
            assert sum(done.values()) >= 3, done
            for name in QUEUES:
                q = Queue(server, name)
                wait_for(lambda q=q: (found := counts(q)).pending + found.active + found.schedule == 0, 60, name)
        assert mended == Counter()
        assert all(counts(Queue(server, name)).dead == 0 for name in QUEUES)
        for name in QUEUES:
            completed = counts(Queue(server, name)).completed
            wait_for(lambda name=name, n=completed: sum(archived(here, name).values()) == n, 60, f"{name} archived")
        daemon.stop()
        for name in QUEUES:
            told = archived(here, name)
            assert set(told.values()) == {1}
            assert set(told) <= set(put[name])
            assert set(told) == set(worked) & set(put[name])
            here.run("archive", "verify", name, "completions")
