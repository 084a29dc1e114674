"""For every module, on random keyspaces: check mode changes nothing and predicts exactly what the real run then does,
and a second run changes nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emq_ops.ledger.ledger import open_ledger
from emq_ops.playbook.events import TaskEnded
from emq_ops.playbook.outcome import TaskOutcome
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.playbook.bench import Bench, job, lane
from tests.playbook.test_cases import spelled
from tests.playbook.test_shipped import add_archive

TASKS = {
    "sweep": ["sweep: ", "sweep: {max_stalled: 2}", "sweep: {limit: 1, restart: count}"],
    "reap": ["reap: ", 'reap: {lane: "@G"}'],
    "promote": ["promote: "],
    "trim_dead": [
        "trim_dead: {keep: 2, age_by: minted, archive: false}",
        "trim_dead: {keep: 0, archive: false}",
        "trim_dead: {max_age: 1d, age_by: minted, archive: true}",
    ],
    "archive": ["archive: {stream: [audit, completions], keep: 2}", "archive: {stream: audit}"],
    "audit": ["audit: ", "audit: {cause: stalled}"],
    "requeue": ["requeue: {all: true, rate: 100000}", 'requeue: {error: ["t*", stalled], rate: 100000}'],
    "remove": ["remove: {all: true, rate: 100000}", 'remove: {ids: ["@A", "@C", "@F"], rate: 100000}'],
    "rehydrate": ['rehydrate: {ids: ["@A", "@B", "@C"], rate: 100000}', 'rehydrate: {ids: "@A", to: pending}'],
    "pause": ["pause: ", 'pause: {lane: "@G"}'],
    "resume": ["resume: ", 'resume: {lane: "@G"}'],
    "limit_lane": ['limit_lane: {lane: "@G", limit: 1}', 'limit_lane: {lane: "@G", limit: 0}'],
    "weight_lane": ['weight_lane: {lane: "@G", weight: 3}', 'weight_lane: {lane: "@G", weight: 0}'],
    "drain": ["drain: ", "drain: {scheduled: true}", 'drain: {lane: "@G"}'],
    "obliterate": ["obliterate: {force: true}"],
    "cancel": ['cancel: {ids: ["@A", "@B", "@C", "@D"]}'],
    "extend": ["extend: {lease: 30s}", 'extend: {lease: 1h, ids: ["@A", "@B"]}'],
    "reassign": ['reassign: {ids: ["@A", "@B", "@C"], lane: "@G"}'],
    "stream_append": ["stream_append: {stream: audit, fields: {who: me}, once: v1}"],
    "stream_trim": ["stream_trim: {stream: audit, keep: 2}", "stream_trim: {stream: completions, max_age: 1d}"],
    "delay_jobs": ['delay_jobs: {ids: ["@A", "@B", "@C", "@D"], for: 1h}'],
    "maintenance": ["maintenance: {state: closed}"],
    "health": ["health: "],
    "wait_for": ["wait_for: {active: 1, timeout: 1ms}", 'wait_for: {jobs: "@A", may_die: true, timeout: 1ms}'],
    "assert": ["assert: 1 > 0"],
    "set_fact": ["set_fact: {x: 1}"],
    "debug": ["debug: x"],
    "fail": ["fail: x"],
}
"""Tasks whose goal a second run finds reached. A window opens again by its nature, so only closing is one of them."""

PLACES = ["pending", "lane", "active", "schedule", "dead"]


@st.composite
def queues(draw: st.DrawFn) -> dict[str, Any]:
    """A queue in words, with oddities beside it."""
    words: dict[str, Any] = {"pending": [], "lanes": {}, "active": {}, "schedule": {}, "dead": {}}
    for name in draw(st.lists(st.sampled_from("ABCDEFGHIJ"), unique=True, max_size=8)):
        place = draw(st.sampled_from(PLACES))
        if place == "pending":
            words["pending"].append(name)
        elif place == "lane":
            words["lanes"].setdefault(draw(st.sampled_from("GK")), []).append(name)
        elif place == "dead":
            words["dead"][name] = draw(st.sampled_from(["stalled", "timeout 3", "timeout 9", "fatal"]))
        else:
            words[place][name] = draw(st.sampled_from([-90_000, -5_000, 60_000, 3_600_000]))
    words["paused"] = draw(st.booleans())
    words["streams"] = draw(st.sampled_from([{}, {"audit": 5}, {"completions": 3, "audit": 1}]))
    words["odd"] = draw(
        st.lists(st.sampled_from(["held", "child", "parent", "ghost", "stalls", "grouped"]), max_size=3)
    )
    return words


def put_odd(bench: Bench, words: dict[str, Any]) -> None:
    """Held jobs, flow children and parents, a ghost, a job that stalled before, a lapsed job of a lane."""
    q = Queue(bench.server, "orders")
    write, k = bench.server.write, q.keys
    dead, active = sorted(words["dead"]), sorted(words["active"])
    for odd in words["odd"]:
        if odd == "held" and dead:
            write("SET", k.book(job(dead[0]), "lock"), "1", "PX", 600_000)
        elif odd == "child" and dead:
            write("HSET", k.row(job(dead[-1])), "parent", job("Z"), "parent_queue", "orders")
        elif odd == "parent" and dead:
            write("SET", k.book(job(dead[0]), "dependencies"), "2")
        elif odd == "ghost":
            write("ZADD", k.active, bench.server.now_ms("orders") - 7_000, job("Y"))
        elif odd == "stalls" and active:
            write("HSET", k.row(job(active[0])), "stalled", "1")
        elif odd == "grouped" and active:
            write("HSET", k.row(job(active[-1])), "group", lane("G"))
            write("HINCRBY", k.gactive, lane("G"), 1)


@contextmanager
def benched(server: Server, empty_state: Path) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(empty_state, f"{folder}/state.db")
        server.write("FLUSHALL")
        with open_ledger(f"sqlite:///{folder}/state.db") as ledger:
            bench = Bench(server, ledger, Path(folder) / "books")
            add_archive(bench)
            yield bench


def one(bench: Bench, task: str, **options: Any) -> TaskOutcome:
    """The outcome of one task."""
    bench.play(f"- queues: orders\n  tasks:\n    - {spelled(task)}\n", **options)
    [ended] = [event for event in bench.said if isinstance(event, TaskEnded)]
    return ended.outcome


def check(server: Server, empty_state: Path, task: str, words: dict[str, Any]) -> None:
    with benched(server, empty_state) as bench:
        bench.configured = ["orders"]
        bench.put("orders", words)
        put_odd(bench, words)
        if task.startswith("rehydrate"):
            one(bench, "remove: {all: true, rate: 100000}")
        before = bench.keyspace()
        predicted = one(bench, task, check=True)
        assert bench.keyspace() == before, "check mode changed something"
        done = one(bench, task)
        if predicted.unknown:
            assert predicted.status == "ok"
        else:
            assert said(done) == said(predicted)
        if predicted.status != "changed" and not predicted.unknown:
            assert bench.keyspace() == before, "it changed more than it said"
        after = bench.keyspace()
        if done.status != "failed":
            again = one(bench, task)
            assert again.status in ("ok", "skipped"), said(again)
            assert bench.keyspace() == after, "a second run changed something"


def said(outcome: TaskOutcome) -> tuple[Any, ...]:
    """What a prediction and a doing must agree in."""
    ids = {name: value for name, value in outcome.result.items() if name.endswith("ids") or name in ("removed", "dead")}
    return outcome.status, outcome.count, sorted(outcome.items), ids


def test_every_module_is_here() -> None:
    from emq_ops.playbook.modules import MODULES

    assert set(TASKS) == set(MODULES)


@pytest.mark.parametrize("name", TASKS)
def test_check_mode_predicts(name: str, server: Server, empty_state: Path) -> None:
    @settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(task=st.sampled_from(TASKS[name]), words=queues())
    def examples(task: str, words: dict[str, Any]) -> None:
        check(server, empty_state, task, words)

    examples()


@pytest.mark.soak(minutes=1)
@pytest.mark.parametrize("name", TASKS)
def test_check_mode_predicts_long(name: str, server: Server, empty_state: Path) -> None:
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(task=st.sampled_from(TASKS[name]), words=queues())
    def examples(task: str, words: dict[str, Any]) -> None:
        check(server, empty_state, task, words)

    examples()
