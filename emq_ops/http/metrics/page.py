"""The page ``/metrics``."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from emq_ops.daemon.telemetry import Telemetry
from emq_ops.http.metrics.counters import EventCounters
from emq_ops.http.metrics.families import HELP
from emq_ops.http.metrics.names import Shown
from emq_ops.http.metrics.queues import lag, leaders, looks, singles, tasks


class MetricsPage:
    """Renders what `told` gives and what `counters` counted; at most `most` queues have series of their own."""

    def __init__(self, told: Callable[[], Telemetry], counters: EventCounters, most: int) -> None:
        self._told, self._counters, self._most = told, counters, most

    def render(self, accept: str) -> tuple[str, bytes]:
        """Content type and body, in the form that a request's `accept` asks for. Never asks server or state."""
        registry = CollectorRegistry()
        registry.register(self)
        encode, kind = choose_encoder(accept)
        return str(kind), bytes(encode(registry))

    def collect(self) -> Iterator[Metric]:
        """The library's question."""
        told = self._told()
        self._counters.forget(self._counters.queues() - set(told.queues))
        shown = Shown(told.queues, self._most)
        build = InfoMetricFamily("emq_build", HELP["emq_build"])
        build.add_metric([], {"version": version("emq-ops"), "python": platform.python_version()})
        yield build
        yield lag(told, self._counters.unread_s())
        for part in (looks, tasks, leaders, singles):
            yield from part(told, shown)
        yield from self._counters.collect(shown)
