"""What the commands that run passes stand on: server, state, policies and windows of a command line."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from emq_ops.cli import told
from emq_ops.cli.archive_parts import Parts, scalar
from emq_ops.cli.context import Globals
from emq_ops.cli.output import emit_one, say
from emq_ops.cli.state import ledger_if_there
from emq_ops.config.effective import Layers
from emq_ops.config.loader import Loaded
from emq_ops.config.policies import dead_policy, stalled_policy
from emq_ops.config.windows import around
from emq_ops.config.wiring import Wiring
from emq_ops.ledger import interruptions
from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.policy.scalars import parse_duration
from emq_ops.policy.words import nearest
from emq_ops.protocol import deadline
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server


@dataclass(frozen=True, slots=True)
class Passing:
    """One command's settings."""

    parts: Parts

    @classmethod
    def of(cls, options: Globals) -> Passing:
        """From the command line. Raises ConfigError."""
        return cls(Parts.of(options))

    def server(self, verb: str) -> contextlib.AbstractContextManager[Server]:
        """The server; `verb` names the connection."""
        return self.parts.server(verb)

    def ledger(self) -> Ledger:
        """The state database. Raises LedgerError, LedgerUnreachableError."""
        return open_ledger(self.parts.wiring.state_url)

    def stalled(self, queue: str) -> StalledPolicy:
        """What the config says of the sweep, or the defaults."""
        effective = Layers(self.parts.loaded).effective(queue)
        if effective.stalled is None:
            return StalledPolicy(protect=effective.protect)
        return stalled_policy(effective.stalled, self.parts.loaded.env, protect=effective.protect)

    def dead(self, queue: str) -> DeadPolicy:
        """What the config says of the trim; without it nothing bounds it."""
        effective = Layers(self.parts.loaded).effective(queue)
        if effective.dead is None:
            return DeadPolicy(protect=effective.protect)
        return dead_policy(effective.dead, self.parts.loaded.env, protect=effective.protect)

    def windows(self) -> list[Window]:
        """The config's maintenance windows that may matter to a pass."""
        return around(self.parts.loaded.config.maintenance, time.time_ns() // 1_000_000)


def with_given(policy: Any, given: Mapping[str, Any]) -> Any:
    """A policy with the flags that were given over it. Raises BadInputError for a value that can't be."""
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(policy, **changes) if changes else policy


def span(text: str | None, where: str) -> int | None:
    """A duration of the command line as ms, None where it was not given. Raises BadInputError."""
    return None if text is None else scalar(parse_duration, text, where)


@contextlib.contextmanager
def bounded(timeout: str | None) -> Iterator[None]:
    """Everything inside ends within ``--timeout``."""
    ms = span(timeout, "--timeout")
    with contextlib.nullcontext() if ms is None else deadline.deadline(ms / 1000):
        yield


def is_there(server: Server, queue: str, *streams: str) -> bool:
    """Whether the server has any key of the queue but rows and lanes, which never stand alone, or one of `streams`."""
    k = keys_of(queue)
    keys = (k.pending, k.active, k.schedule, k.dead, k.ring, k.meta, k.completed, k.failed, k.repeat, k.lease)
    return any(server.read_many([("EXISTS", key) for key in (*keys, *map(k.stream, streams))]))


def is_known(wiring: Wiring, queue: str) -> bool:
    """Whether the state has ever seen the queue: that the server has it no more is then for a pass to find out."""
    with ledger_if_there(wiring) as ledger:
        return ledger is not None and interruptions.knows(ledger, queue)


def warn_of_absence(server: Server, queue: str, loaded: Loaded, *streams: str) -> None:
    """A word where the server has no such queue (nor `streams` of it) and the config takes none: most likely the name
    is mistyped."""
    layers = Layers(loaded)
    if not layers.selectors(queue) and not is_there(server, queue, *streams):
        say(f"emq-ops: {queue}: the server has no such queue{near_of(queue, layers, server)}")


def near_of(queue: str, layers: Layers, server: Server) -> str:
    """`` (did you mean 'orders'?)``, where something is near."""
    near = nearest(queue, sorted({*layers.literals, *server.queues()}))
    return f" (did you mean '{near}'?)" if near and near != queue else ""


def show(kind: str, report: Mapping[str, Any], output: str) -> None:
    """The report of a sweep, trim or fold (`kind`) on stdout. Its notes go to stderr."""
    emit_one(told.report(kind, report) if output == "table" else report, output)
    for note in report.get("notes", ()):
        say(f"emq-ops: {report['queue']}: {note}")
