"""The names of all families, and what each means and asks for: the one list that code, docs and examples go by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

HELP = {
    "emq_queue_jobs": "Jobs by where they are (see emq-ops queue show QUEUE)",
    "emq_queue_oldest_waiting_seconds": "Since when the oldest waiting job waits (emq-ops queue show QUEUE)",
    "emq_queue_oldest_lease_seconds": "For how long the lease that lapsed first is over (emq-ops ps: a sweep is due)",
    "emq_queue_paused": "1 while the queue is paused (emq-ops queue resume QUEUE)",
    "emq_queue_aside": "Members that nobody can take and that were set aside (emq-ops doctor QUEUE)",
    "emq_jobs_dead": "Jobs that died, by cause (emq-ops audit dead QUEUE)",
    "emq_jobs_recovered": "Jobs whose lease lapsed and that wait again: workers die or hang (emq-ops runs ls)",
    "emq_jobs_exempted": "Stalls that an interruption excused (emq-ops audit restarts)",
    "emq_jobs_completed": "Jobs that ended, by outcome, as the archive read it for the first time",
    "emq_job_wait_seconds": "From mint to start, of jobs that one attempt ended (growing: more workers)",
    "emq_job_duration_seconds": "From a job's last start to its end",
    "emq_pass_duration_seconds": "How long passes took that found something to do (emq-ops runs ls)",
    "emq_pass_lateness_seconds": "How late a pass last began, of the queue that waited longest (one more host)",
    "emq_pass_failures": "Runs that failed, by kind of error (emq-ops ps says which)",
    "emq_archive_lag_seconds": "Age of the oldest record not read; how far the store is behind (archive status)",
    "emq_archive_records": "Records read, shipped into the store, and trimmed from their streams",
    "emq_archive_segments": "Segments in the store (many small ones: emq-ops archive compact)",
    "emq_archive_stored_records": "Records in the store's segments",
    "emq_archive_bytes": "Bytes of the store's segments (archive.expire_after lets go of old ones)",
    "emq_drift_settings": "Settings that are not as applied (emq-ops drift)",
    "emq_server_memory_ratio": "Memory of the fullest server by its limit; near 1 writes are refused (emq-ops trim)",
    "emq_interruptions": "Restarts, failovers and outages of the server (emq-ops audit restarts)",
    "emq_leases_lost": "Leases of queues that were lost: another host leads, or this one was too slow (emq-ops ps)",
    "emq_queues_without_leader": "Queues of the revision that nobody leads (emq-ops up; emq-ops ps)",
    "emq_queues_summed": "Queues that are told together as '*' (http.metrics_queues)",
    "emq_look_age_seconds": "Age of the last whole look at the queues: above 60 the depths are old",
    "emq_alerts": "Alerts that were raised, by kind (emq-ops runs ls)",
    "emq_ops_task_runs": "Runs of a task",
    "emq_ops_task_missed": "Runs that were too late to start (max_late)",
    "emq_ops_task_failures_in_a_row": "Failures since the last success (emq-ops ps says why)",
    "emq_ops_task_late_seconds": "How late the last run began",
    "emq_ops_task_lag_seconds": "By how much the next run is overdue",
    "emq_ops_tasks_overdue": "Tasks whose next run is overdue: this host does not keep up",
    "emq_ops_queue_led": "1 while somebody leads the queue (emq-ops ps)",
    "emq_ops_queue_held": "1 while the queue is held: no pass runs (emq-ops release QUEUE)",
    "emq_ops_queue_maintenance": "1 inside a maintenance window: stalls don't count",
    "emq_ops_queue_drifted": "Settings of a queue that are not as applied (emq-ops drift QUEUE)",
    "emq_build": "The daemon's version",
}
"""Counters without their ``_total``."""

Series = Iterable[tuple[Sequence[str], float]]


def gauge(name: str, labels: Sequence[str], series: Series) -> Metric:
    """A family of gauges with these series."""
    family = GaugeMetricFamily(name, HELP[name], labels=labels)
    for values, value in series:
        family.add_metric(values, float(value))
    return family


def counter(name: str, labels: Sequence[str], series: Series) -> Metric:
    """A family of counters with these series."""
    family = CounterMetricFamily(name, HELP[name], labels=labels)
    for values, value in series:
        family.add_metric(values, float(value))
    return family
