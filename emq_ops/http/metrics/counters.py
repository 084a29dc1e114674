"""What a daemon's events add up to since it began."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import HistogramMetricFamily, Metric

from emq_archive.tally import BOUNDS_MS, Spread
from emq_ops.daemon import clock
from emq_ops.daemon.events import TaskFailed
from emq_ops.http.metrics.families import HELP, counter
from emq_ops.http.metrics.names import OTHERS, Shown
from emq_ops.passes.events import (
    Alerted,
    Died,
    Event,
    InterruptionSeen,
    LeaseLost,
    PassEnded,
    PassStarted,
    SliceSwept,
    StreamArchived,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
MOST_CODES = 64
"""Kinds of errors that are told apart; further ones are ``other``."""
MOST_RUNNING = 10_000
Labels = tuple[str, ...]


class EventCounters:
    """Takes events, from any thread; `collect` gives families."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}
        self._dead: Counter[Labels] = Counter()
        self._recovered: Counter[Labels] = Counter()
        self._exempted: Counter[Labels] = Counter()
        self._failed: Counter[Labels] = Counter()
        self._interruptions: Counter[Labels] = Counter()
        self._alerts: Counter[Labels] = Counter()
        self._records: Counter[Labels] = Counter()
        self._completed: Counter[Labels] = Counter()
        self._leases_lost = 0
        self._unread_ms: dict[tuple[str, str], int] = {}
        self._waits, self._durations = Spread(), Spread()
        self.registry = CollectorRegistry()
        """Of the durations of passes, whose samples carry the id of a run as an exemplar."""
        self._passes = Histogram(
            "emq_pass_duration_seconds",
            HELP["emq_pass_duration_seconds"],
            ["pass"],
            buckets=SECONDS,
            registry=self.registry,
        )

    def __call__(self, event: Event) -> None:
        """One more event; what is of no interest passes by."""
        with self._lock:
            match event:
                case PassStarted(run=str(run)) if len(self._begun) < MOST_RUNNING:
                    self._begun[run] = clock.steady()
                case PassEnded(run=str(run)) if (begun := self._begun.pop(run, None)) is not None:
                    self._passes.labels(event.kind).observe(clock.steady() - begun, {"run_id": run})
                case Died():
                    self._dead[event.queue, event.cause] += 1
                case SliceSwept():
                    self._recovered[event.queue,] += event.recovered
                    self._exempted[event.queue,] += event.exempted
                case TaskFailed():
                    task = event.task.removeprefix(f"{event.queue}/").split(":")[0]
                    known = len(self._failed) < MOST_CODES or (task, event.code) in self._failed
                    self._failed[task, event.code if known else "other"] += 1
                case InterruptionSeen():
                    self._interruptions[event.kind,] += 1
                case Alerted():
                    self._alerts[event.kind,] += 1
                case LeaseLost():
                    self._leases_lost += 1
                case StreamArchived():
                    self._archived(event)
                case _:
                    pass

    def _archived(self, event: StreamArchived) -> None:
        for stage in ("read", "shipped", "trimmed"):
            self._records[stage,] += getattr(event, stage)
        key = event.queue, event.stream
        self._unread_ms.pop(key, None)
        if event.lag_ms:
            self._unread_ms[key] = event.lag_ms
        if event.tally is not None:
            for outcome, count in event.tally.outcomes.items():
                self._completed[event.queue, outcome] += count
            for mine, theirs in ((self._waits, event.tally.waits), (self._durations, event.tally.durations)):
                mine.counts = [a + b for a, b in zip(mine.counts, theirs.counts, strict=True)]
                mine.sum_ms += theirs.sum_ms

    def forget(self, queues: Iterable[str]) -> None:
        """These are gone: what they counted goes on among the others, so that no sum falls."""
        gone = set(queues)
        with self._lock:
            for counted in (self._dead, self._recovered, self._exempted, self._completed):
                for labels in [labels for labels in counted if labels[0] in gone]:
                    counted[OTHERS, *labels[1:]] += counted.pop(labels)
            self._unread_ms = {key: lag for key, lag in self._unread_ms.items() if key[0] not in gone}

    def queues(self) -> set[str]:
        """The queues that have counted anything."""
        with self._lock:
            counters = (self._dead, self._recovered, self._exempted, self._completed)
            return {labels[0] for counted in counters for labels in counted} - {OTHERS}

    def unread_s(self) -> float:
        """The age of the oldest record that a last cycle left unread, seconds."""
        with self._lock:
            return max(self._unread_ms.values(), default=0) / 1000

    def collect(self, shown: Shown) -> Iterator[Metric]:
        """The families, with a series a queue that is shown."""
        with self._lock:
            yield counter("emq_jobs_dead", ["queue", "cause"], _by_queue(self._dead, shown))
            yield counter("emq_jobs_recovered", ["queue"], _by_queue(self._recovered, shown))
            yield counter("emq_jobs_exempted", ["queue"], _by_queue(self._exempted, shown))
            yield counter("emq_jobs_completed", ["queue", "outcome"], _by_queue(self._completed, shown))
            yield counter("emq_pass_failures", ["pass", "code"], sorted(self._failed.items()))
            yield counter("emq_interruptions", ["kind"], sorted(self._interruptions.items()))
            yield counter("emq_alerts", ["kind"], sorted(self._alerts.items()))
            yield counter("emq_archive_records", ["stage"], sorted(self._records.items()))
            yield counter("emq_leases_lost", [], [([], self._leases_lost)])
            yield _histogram("emq_job_wait_seconds", self._waits)
            yield _histogram("emq_job_duration_seconds", self._durations)
        yield from self.registry.collect()


def _by_queue(counted: Counter[Labels], shown: Shown) -> list[tuple[Labels, int]]:
    out: Counter[Labels] = Counter()
    for (queue, *more), count in counted.items():
        out[shown.label(queue), *more] += count
    return sorted(out.items())


def _histogram(name: str, spread: Spread) -> Metric:
    family = HistogramMetricFamily(name, HELP[name])
    total, buckets = 0, []
    for bound, count in zip((*BOUNDS_MS, None), spread.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound is None else str(bound / 1000), total))
    family.add_metric([], buckets, spread.sum_ms / 1000)
    return family
