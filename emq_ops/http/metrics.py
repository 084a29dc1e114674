"""Metrics of a daemon in Prometheus' text form, made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Rows = Callable[[], Iterable[dict[str, Any]]]
Drift = Callable[[], Mapping[str, int]]


class Tasks:
    """Collects the tasks' rows (`emq_ops.daemon.status.task_rows`) as metrics."""

    def __init__(self, rows: Rows, drift: Drift) -> None:
        self._rows, self._drift = rows, drift

    def collect(self) -> Iterable[Metric]:
        """The library's question."""
        labels = ["queue", "task"]
        runs = CounterMetricFamily("emq_ops_task_runs", "Runs of a task", labels=labels)
        missed = CounterMetricFamily("emq_ops_task_missed", "Runs that were too late to start", labels=labels)
        failing = GaugeMetricFamily("emq_ops_task_failures_in_a_row", "Failures since the last success", labels=labels)
        late = GaugeMetricFamily("emq_ops_task_late_seconds", "How late the last run began", labels=labels)
        lag = GaugeMetricFamily("emq_ops_task_lag_seconds", "By how much the next run is overdue", labels=labels)
        led = GaugeMetricFamily("emq_ops_queue_led", "1 while somebody leads the queue", labels=["queue"])
        held = GaugeMetricFamily(
            "emq_ops_queue_held", "1 while the queue is held: no pass runs on it", labels=["queue"]
        )
        quiet = GaugeMetricFamily(
            "emq_ops_queue_maintenance", "1 inside a maintenance window: stalls don't count", labels=["queue"]
        )
        overdue = GaugeMetricFamily("emq_ops_tasks_overdue", "Tasks whose next run is overdue")
        drifted = GaugeMetricFamily("emq_ops_queue_drifted", "Settings that are not as applied", labels=["queue"])
        for queue, settings in self._drift().items():
            drifted.add_metric([queue], settings)
        queues: dict[str, dict[str, Any]] = {}
        count = 0
        for row in self._rows():
            names = [row["queue"], row["task"]]
            runs.add_metric(names, row["runs"])
            missed.add_metric(names, row["missed"])
            failing.add_metric(names, row["failures"])
            late.add_metric(names, (row["late_ms"] or 0) / 1000)
            lag.add_metric(names, (row["overdue_ms"] or 0) / 1000)
            count += bool(row["overdue_ms"])
            queues[row["queue"]] = row
        overdue.add_metric([], count)
        for queue, row in queues.items():
            led.add_metric([queue], float(bool(row["leader"])))
            held.add_metric([queue], float(row["held_until_ms"] is not None))
            quiet.add_metric([queue], float(row["maintenance_until_ms"] is not None))
        return [runs, missed, failing, late, lag, overdue, led, held, quiet, drifted]


def text(rows: Rows, drift: Drift = dict) -> bytes:
    """The metrics page. `drift`: queue -> settings that are not as applied."""
    registry = CollectorRegistry()
    registry.register(Tasks(rows, drift))
    return generate_latest(registry)
