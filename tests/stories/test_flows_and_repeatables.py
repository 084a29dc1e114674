"""Flows over three queues and repeatables, beside two pumps of ours and workers that are killed all the time.

`FLOWS_MINUTES=10` makes ten minutes of it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from emq_ops.audit.doctor import examine
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import flows, reads
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy
from emq_ops.protocol.transitions.reads import JobState
from emq_ops.worker import Job
from tests.support.daemons import Site, site, wait_for
from tests.support.run_worker import start_worker
from tests.support.valkey import Valkey
from tests.support.zygote import Child, Zygote

MINUTES = float(os.environ.get("FLOWS_MINUTES", "1"))
QUEUES = ("orders", "mail", "render")
LANE = "GRP0SSBKAh61tG"
CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
daemon: {{lease: 1s}}
defaults: {{stalled: {{every: 1s, max_stalled: 1000}}, promote: {{every: 50ms}}}}
queues:
  orders: {{settings: {{repeatables: {{flat: {{every: 1s, template: tick}}}}}}}}
  mail: {{settings: {{repeatables: {{laned: {{every: 1s, template: tick, lane: {lane}}}}}}}}}
  render: {{settings: {{repeatables: {{both: {{every: 1s, template: tick}}}}}}}}
"""
RAN = "soak:{}"
"""A list for each queue on the server: the ids of occurrences, as their handler saw them."""


def handle(job: Job) -> bytes:
    """Does as the payload says: ``ok``, ``die``, or an occurrence, which is written down."""
    if job.payload == b"tick":
        job._queue.server.write("RPUSH", RAN.format(job.queue), job.id)
    if job.payload == b"die":
        raise ValueError("told to die")
    return b"did " + job.id.encode()


@dataclass(frozen=True)
class Planned:
    """A flow, and whether its root must die."""

    root: FlowJob
    dies: bool


def plan(dice: random.Random, levels: int = 0) -> Planned:
    """A random tree: inner nodes, leaves that die, both policies, any queue."""
    children, dies = [], False
    for _ in range(dice.randint(1, 3)):
        policy = dice.choice(list(ParentPolicy))
        if levels < 3 and dice.random() < 0.3:
            below = plan(dice, levels + 1)
            one, ends = below.root, below.dies
        else:
            ends = dice.random() < 0.2
            one = FlowJob(ids.mint(), b"die" if ends else b"ok")
        children.append(FlowJob(one.job, one.payload, dice.choice(QUEUES), policy, one.children))
        dies = dies or (ends and policy is ParentPolicy.FAIL)
    return Planned(FlowJob(ids.mint(), b"ok", children=tuple(children)), dies)


class Processes:
    """What runs, each started again as it is killed."""

    def __init__(self, zygote: Zygote, here: Site, url: str) -> None:
        pump = {"url": url, "queues": list(QUEUES)}
        settings = {"lease": 1_000, "beat": 50, "max_attempts": 1, "recovery": "reap", "cancel": False}
        self._makers: list[Callable[[], Child]] = [
            lambda: zygote.start("tests.stories.run_pump", **pump),
            *(
                lambda name=name: start_worker(zygote, url, name, f"{__name__}:handle", until_idle=False, **settings)
                for name in QUEUES
            ),
        ]
        self._here = here
        self._daemon = here.up()
        self._children = [make() for make in self._makers]
        self.killed = 0

    def kill_one(self, dice: random.Random) -> None:
        """SIGKILL to one of them, and a new one in its place."""
        place = dice.randrange(len(self._children) + 1)
        if place == len(self._children):
            self._daemon.kill()
            self._daemon = self._here.up(ready=False)
        else:
            self._children[place].kill()
            self._children[place] = self._makers[place]()
        self.killed += 1

    def close(self) -> None:
        """All of them."""
        self._daemon.kill()
        for one in self._children:
            one.kill()


@contextmanager
def running(zygote: Zygote, here: Site, url: str) -> Iterator[Processes]:
    made = Processes(zygote, here, url)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.soak(minutes=3)
def test_every_parent_ends_rightly_and_each_occurrence_comes_once(
    tmp_path: Path, zygote: Zygote, valkey: Valkey, server: Server
) -> None:
    dice = random.Random(int(os.environ.get("FLOWS_SEED", "1")))
    queues = {name: Queue(server, name) for name in QUEUES}
    planned: list[tuple[str, Planned]] = []
    with site(tmp_path / "site", CONFIG.format(url=valkey.url, lane=LANE)) as here:
        here.run("apply", "--yes")
        with running(zygote, here, valkey.url) as processes:
            until = time.monotonic() + MINUTES * 60
            while time.monotonic() < until:
                for _ in range(5):
                    home, one = dice.choice(QUEUES), plan(dice)
                    assert flows.add(queues[home], one.root)
                    planned.append((home, one))
                processes.kill_one(dice)
                time.sleep(dice.uniform(0.05, 0.4))
            lasting = {(home, one.root.job): one.dies for home, one in planned}
            wait_for(lambda: unsettled(queues, lasting) == {}, 120, why=f"{unsettled(queues, lasting)} wait")
            assert processes.killed > 10
        check_flows(queues, lasting)
        check_occurrences(server, queues)
    print(json.dumps({"flows": len(planned), "killed": processes.killed}))


def unsettled(queues: dict[str, Queue], lasting: dict[tuple[str, str], bool]) -> dict[tuple[str, str], JobState]:
    """The roots that have not ended as they must; those that do are looked at no more."""
    states = {flow: reads.job_state(queues[flow[0]], flow[1]) for flow in lasting}
    return {
        flow: state
        for flow, state in states.items()
        if state is not (JobState.DEAD if lasting[flow] else JobState.ABSENT)
    }


def check_flows(queues: dict[str, Queue], lasting: dict[tuple[str, str], bool]) -> None:
    """Both ends came about, no signal is left or set aside, nobody waits for ever."""
    assert {True, False} == set(lasting.values())
    for q in queues.values():
        assert q.server.read("LLEN", q.keys.outbox_aside) == 0
        assert q.server.read("HLEN", q.keys.aside) == 0
        while flows.deliver(q).seen:
            continue
    [some, *_] = queues.values()
    kinds = {finding.kind for finding in examine(some.server, list(queues)).findings}
    assert kinds.isdisjoint({"lost_children", "untold_death", "unreleased_parent", "two_places", "lost_row"}), kinds


def check_occurrences(server: Server, queues: dict[str, Queue]) -> None:
    """Each id was minted a period after the one before it at least: nothing fired twice; and they went on coming."""
    for name, q in queues.items():
        ran = {job.decode() for job in server.read("LRANGE", RAN.format(name), 0, -1)}
        waiting = [*server.read("ZRANGE", q.keys.pending, 0, -1), *server.read("ZRANGE", q.keys.lane(LANE), 0, -1)]
        ticks = sorted(ids.parse(job).unix_ms for job in {*ran, *occurrences(q, waiting)})
        gaps = [after - before for before, after in itertools.pairwise(ticks)]
        assert len(ticks) > MINUTES * 60 * 0.3, f"{name} fired {len(ticks)} times"
        assert min(gaps) >= 1_000, f"{name} fired twice within {min(gaps)} ms"


def occurrences(q: Queue, waiting: list[bytes]) -> set[str]:
    payloads = q.server.read_many([("HGET", q.keys.row(job.decode()), "payload") for job in waiting])
    return {job.decode() for job, payload in zip(waiting, payloads, strict=True) if payload == b"tick"}
