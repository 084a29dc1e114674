"""How queues and tasks stand, as metrics: from the daemon's last look, never by asking."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from emq_ops.daemon.restrictions import fields_of
from emq_ops.daemon.telemetry import TaskFacts, Telemetry
from emq_ops.http.metrics.families import counter, gauge
from emq_ops.http.metrics.names import Shown
from emq_ops.overview.look import QueueLook

_Join = Callable[[float, float], float]

STATES = ("waiting", "active", "scheduled", "dead")


def _age(look: QueueLook, at_ms: int | None) -> float:
    return 0.0 if at_ms is None else max(0, look.now_ms - at_ms) / 1000


GAUGES: dict[str, tuple[Callable[[QueueLook], float], _Join]] = {
    "emq_queue_oldest_waiting_seconds": (lambda look: _age(look, look.oldest_ms), max),
    "emq_queue_oldest_lease_seconds": (lambda look: _age(look, look.deadline_ms), max),
    "emq_queue_paused": (lambda look: float(look.paused), operator.add),
    "emq_queue_aside": (lambda look: float(look.aside), operator.add),
}
"""Name -> the value of a look, and how the values of several queues are one."""


def looks(told: Telemetry, shown: Shown) -> Iterator[Metric]:
    """Depths and ages, of the queues that this daemon leads."""
    jobs: dict[tuple[str, str], float] = defaultdict(float)
    gauges: dict[str, dict[str, float]] = {name: {} for name in GAUGES}
    for look in told.looks.values():
        label = shown.label(look.queue)
        for state in STATES:
            jobs[label, state] += getattr(look, state)
        for name, (of, join) in GAUGES.items():
            values = gauges[name]
            values[label] = join(values[label], of(look)) if label in values else of(look)
    yield gauge("emq_queue_jobs", ["queue", "state"], jobs.items())
    for name, values in gauges.items():
        yield gauge(name, ["queue"], (([label], value) for label, value in values.items()))


def lag(told: Telemetry, unread_s: float) -> Metric:
    """How far the archive is behind. `unread_s`: the age of the oldest record that no cycle has read, seconds."""
    stored = max((look.lag_ms or 0 for look in told.looks.values()), default=0)
    return gauge("emq_archive_lag_seconds", ["stage"], [(["read"], unread_s), (["stored"], stored / 1000)])


def tasks(told: Telemetry, shown: Shown) -> Iterator[Metric]:
    """The timetable of this daemon."""
    joined: dict[tuple[str, str], list[TaskFacts]] = defaultdict(list)
    latest: dict[str, float] = {}
    for one in told.tasks:
        joined[shown.label(one.queue), one.task].append(one)
        latest[one.kind] = max(latest.get(one.kind, 0.0), one.late_ms / 1000)
    labels = ["queue", "task"]

    def of_each(name: str, make: Callable[..., Metric], value: Callable[[list[TaskFacts]], float]) -> Metric:
        return make(name, labels, ((names, value(some)) for names, some in joined.items()))

    yield of_each("emq_ops_task_runs", counter, lambda some: sum(one.runs for one in some))
    yield of_each("emq_ops_task_missed", counter, lambda some: sum(one.missed for one in some))
    yield of_each("emq_ops_task_failures_in_a_row", gauge, lambda some: max(one.failures for one in some))
    yield of_each("emq_ops_task_late_seconds", gauge, lambda some: max(one.late_ms for one in some) / 1000)
    yield of_each("emq_ops_task_lag_seconds", gauge, lambda some: max(one.overdue_s for one in some))
    yield gauge("emq_ops_tasks_overdue", [], [([], sum(one.overdue_s > 0 for one in told.tasks))])
    yield gauge("emq_pass_lateness_seconds", ["pass"], (([kind], seconds) for kind, seconds in latest.items()))


def leaders(told: Telemetry, shown: Shown) -> Iterator[Metric]:
    """Who leads, what is held, what was moved by hand."""
    led: dict[str, float] = defaultdict(float)
    held: dict[str, float] = defaultdict(float)
    quiet: dict[str, float] = defaultdict(float)
    for queue in told.queues:
        label = shown.label(queue)
        row = fields_of(queue, told.restrictions) if told.restrictions else {}
        led[label] += queue in told.led or queue in told.others
        held[label] += row.get("held_until_ms") is not None
        quiet[label] += row.get("maintenance_until_ms") is not None
    drifted: dict[str, float] = defaultdict(float)
    for queue, settings in told.drifted.items():
        drifted[shown.label(queue)] += settings
    for name, values in (
        ("emq_ops_queue_led", led),
        ("emq_ops_queue_held", held),
        ("emq_ops_queue_maintenance", quiet),
        ("emq_ops_queue_drifted", drifted),
    ):
        yield gauge(name, ["queue"], (([label], value) for label, value in values.items()))


def singles(told: Telemetry, shown: Shown) -> Iterator[Metric]:
    """What there is once a daemon."""
    segments, records, size = told.archive or (0, 0, 0)
    values: dict[str, float | None] = {
        "emq_queues_without_leader": told.without_leader,
        "emq_queues_summed": shown.summed,
        "emq_drift_settings": sum(told.drifted.values()),
        "emq_archive_segments": segments,
        "emq_archive_stored_records": records,
        "emq_archive_bytes": size,
        "emq_server_memory_ratio": told.memory,
        "emq_look_age_seconds": told.looked_s,
    }
    for name, value in values.items():
        if value is not None:
            yield gauge(name, [], [([], value)])
