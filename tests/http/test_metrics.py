"""Metrics: what they count, whom they cost, and how many they are."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from emq_archive.tally import BOUNDS_MS, Tally
from emq_ops.daemon.events import TaskFailed
from emq_ops.daemon.telemetry import TaskFacts, Telemetry
from emq_ops.http.metrics.counters import EventCounters
from emq_ops.http.metrics.families import HELP
from emq_ops.http.metrics.page import MetricsPage
from emq_ops.overview.look import QueueLook, look_at_queues
from emq_ops.passes.events import Died, Event, PassEnded, PassStarted, SliceSwept, StreamArchived
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, settle
from tests.support.daemons import site, wait_for
from tests.support.orders import config
from tests.support.valkey import Valkey

TEXT, OPEN = "text/plain", "application/openmetrics-text; version=1.0.0"
Values = dict[tuple[str, ...], float]


def told(queues: list[str], looks: dict[str, QueueLook] | None = None, **changes: Any) -> Telemetry:
    values: dict[str, Any] = {
        "queues": queues,
        "led": frozenset(queues),
        "others": frozenset(),
        "tasks": [TaskFacts(queue, "stalled", "stalled", 3, 0, 0, 1500, 0.0) for queue in queues],
        "looks": looks or {},
        "looked_s": 1.0,
        "restrictions": (),
        "drifted": {},
        "memory": 0.25,
        "archive": (2, 30, 400),
    }
    return Telemetry(**{**values, **changes})


def samples(body: bytes) -> dict[str, Values]:
    """Name -> labels' values in the order of their names -> value."""
    found: dict[str, Values] = {}
    for family in text_string_to_metric_families(body.decode()):
        for one in family.samples:
            key = tuple(one.labels[name] for name in sorted(one.labels))
            found.setdefault(one.name, {})[key] = one.value
    return found


def page(facts: Telemetry, *events: Event, most: int = 1000) -> tuple[MetricsPage, EventCounters]:
    counters = EventCounters()
    for event in events:
        counters(event)
    return MetricsPage(lambda: facts, counters, most), counters


@pytest.fixture
def looks(server: Server) -> dict[str, QueueLook]:
    """Queues a to d with 1 to 4 waiting jobs; c is paused."""
    for count, name in enumerate("abcd", 1):
        for _ in range(count):
            enqueue.enqueue(Queue(server, name), ids.mint(), b"x")
    control.pause_queue(Queue(server, "c"))
    found = {look.queue: look for look in look_at_queues(server, list("abcd")) if isinstance(look, QueueLook)}
    assert len(found) == 4
    return found


def test_queues_beyond_the_bound_are_told_together(looks: dict[str, QueueLook]) -> None:
    died = [Died(queue, job="JOB0", cause="stalled") for queue in "aabd"]
    rendered, counters = page(told(list("abcd"), looks), *died, most=2)
    found = samples(rendered.render(TEXT)[1])
    assert {key: value for key, value in found["emq_queue_jobs"].items() if key[1] == "waiting"} == {
        ("a", "waiting"): 1,
        ("b", "waiting"): 2,
        ("*", "waiting"): 7,
    }
    assert found["emq_queue_paused"] == {("a",): 0, ("b",): 0, ("*",): 1}
    assert found["emq_jobs_dead_total"] == {("stalled", "a"): 2, ("stalled", "b"): 1, ("stalled", "*"): 1}
    assert found["emq_ops_task_runs_total"] == {("a", "stalled"): 3, ("b", "stalled"): 3, ("*", "stalled"): 6}
    assert found["emq_queues_summed"] == {(): 2}
    # A queue that left has no series, and no sum falls by it.
    rendered = MetricsPage(lambda: told(["b", "d"], {"b": looks["b"]}), counters, 1000)
    found = samples(rendered.render(TEXT)[1])
    assert found["emq_jobs_dead_total"] == {("stalled", "*"): 2, ("stalled", "b"): 1, ("stalled", "d"): 1}
    assert {key[0] for key in found["emq_queue_jobs"]} == {"b"}


def test_both_forms_are_well_formed_and_say_what_to_do(looks: dict[str, QueueLook]) -> None:
    events = [
        PassStarted("a", "RUN1", kind="sweep"),
        SliceSwept("a", "RUN1", recovered=2, exempted=1),
        PassEnded("a", "RUN1", kind="sweep", status="done"),
        PassEnded("a", "RUN2", kind="sweep", status="done"),  # begun before this daemon counted
        TaskFailed("a/b", task="a/b/stream:completions", error="x", code="OOM"),
        StreamArchived("a", stream="completions", read=5, shipped=4, trimmed=3, lag_ms=1500, tally=Tally({"dead": 2})),
    ]
    rendered, _ = page(told(list("abcd"), looks, led=frozenset("ab"), others=frozenset("c"), drifted={"a": 2}), *events)
    kind, body = rendered.render(TEXT)
    assert kind.startswith("text/plain; version=0.0.4")
    found = samples(body)
    assert found["emq_jobs_recovered_total"] == {("a",): 2}
    assert found["emq_jobs_exempted_total"] == {("a",): 1}
    assert found["emq_pass_duration_seconds_count"] == {("sweep",): 1}
    assert found["emq_pass_failures_total"] == {("OOM", "stream"): 1}
    assert found["emq_archive_records_total"] == {("read",): 5, ("shipped",): 4, ("trimmed",): 3}
    assert found["emq_archive_lag_seconds"][("read",)] == 1.5
    assert found["emq_jobs_completed_total"] == {("dead", "a"): 2}
    assert found["emq_queues_without_leader"] == {(): 1}
    assert found["emq_ops_queue_led"] == {("a",): 1, ("b",): 1, ("c",): 1, ("d",): 0}
    assert found["emq_pass_lateness_seconds"] == {("stalled",): 1.5}
    assert found["emq_server_memory_ratio"] == {(): 0.25}
    kind, body = rendered.render(OPEN)
    assert kind.startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(body.decode())}
    runs = [one.exemplar.labels for one in families["emq_pass_duration_seconds"].samples if one.exemplar]
    assert runs == [{"run_id": "RUN1"}]
    assert {name for name in families if name != "emq_build"} <= HELP.keys()
    assert all(family.documentation == HELP[name] for name, family in families.items())
    if promtool := shutil.which("promtool"):
        ran = subprocess.run(
            [promtool, "check", "metrics"], input=rendered.render(TEXT)[1], capture_output=True, timeout=60
        )
        assert (ran.returncode, ran.stdout) == (0, b""), ran.stderr.decode()


def test_every_family_is_in_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs/monitoring.md").read_text()
    listed = set(re.findall(r"^\| `(emq_[a-z_]+)", text, re.M))
    assert {name.removesuffix("_total").removesuffix("_info") for name in listed} == HELP.keys()


def test_kinds_of_errors_are_bounded() -> None:
    rendered, _ = page(told(["a"]), *(TaskFailed("a", task="a/dead", code=f"E{n}") for n in range(1000)))
    found = samples(rendered.render(TEXT)[1])["emq_pass_failures_total"]
    assert len(found) == 65
    assert found["other", "dead"] == 1000 - 64


def test_a_frozen_server_keeps_no_scrape_waiting(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    q = Queue(server, "orders")
    text = config(valkey) + "http: {listen: '127.0.0.1:0', metrics: open}\n"
    with site(tmp_path / "s", text) as here:
        for _ in range(3):
            enqueue.enqueue(q, ids.mint(), b"x")
            claim = claims.claim(q, 60_000)
            assert claim is not None
            ended = settle.CompletionRecord("completed", server.now_ms("orders"), node=1)
            settle.complete(q, claim.job, claim.token, record=ended)
        enqueue.enqueue(q, ids.mint(), b"x")
        daemon = here.up("--apply")
        port = wait_for(lambda: daemon.events("http"))[0]["port"]

        def scrape() -> dict[str, Values]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
                return samples(answer.read())

        found = wait_for(
            lambda: (now := scrape()) and "emq_queue_jobs" in now and "emq_jobs_completed_total" in now and now
        )
        assert found["emq_queue_jobs"]["orders", "waiting"] == 1
        assert found["emq_jobs_completed_total"] == {("completed", "orders"): 3}
        assert found["emq_job_duration_seconds_count"] == found["emq_job_wait_seconds_count"] == {(): 3}
        assert found["emq_job_wait_seconds_bucket"][(str(float(BOUNDS_MS[-1] // 1000)),)] == 3
        os.kill(valkey.process.pid, signal.SIGSTOP)
        try:
            assert scrape()["emq_queue_jobs"]["orders", "waiting"] == 1
        finally:
            os.kill(valkey.process.pid, signal.SIGCONT)
        daemon.stop()
