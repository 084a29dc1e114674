"""Looking: bounded SCAN over the queues' keys, each suspect looked at a second time before it counts.

The second look comes after a moment, for what others do in several steps (a deduplication key set before its job).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from emq_ops.audit.doctor.finding import Finding
from emq_ops.audit.doctor.flows import examine_flows
from emq_ops.audit.doctor.kinds import KINDS
from emq_ops.audit.doctor.queue_examination import MAX_FLIGHTS, QueueExamination
from emq_ops.protocol import key_names, keyspace
from emq_ops.protocol.errors import SlotMovingError
from emq_ops.protocol.keyspace import EVERY_KEY, keys_of
from emq_ops.protocol.server import Server

SETTLE_SECONDS = 0.2


@dataclass(slots=True)
class Diagnosis:
    """What an examination found. `notes`: what an operator should know, without anything to mend; `unlisted`: how many
    more of a kind there are than were listed, by queue and kind; `looked`: keys seen; `unjudged`: queues whose slot the
    Cluster moves, of which nothing is said."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unlisted: dict[tuple[str, str], int] = field(default_factory=dict)
    queues: list[str] = field(default_factory=list)
    looked: int = 0
    unjudged: list[str] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return not self.findings and not self.unjudged


def examine(
    server: Server,
    queues: Sequence[str],
    *,
    settle: float = SETTLE_SECONDS,
    max_flights: int = MAX_FLIGHTS,
    listed: frozenset[str] = frozenset(),
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Looks at every key of `queues` (names). Changes nothing. `listed`: ordinary kinds that are findings all the same.
    A queue whose slot is moving is left out, and told. `progress`: called with how many keys were looked at, then with
    how many queues of how many were judged.
    Raises what the server raises, SlotMovingError where there is no other queue."""
    out = Diagnosis(queues=sorted(queues))
    examined = {name: QueueExamination(server, keys_of(name), max_flights, listed) for name in out.queues}

    def guarded(name: str, step: Callable[[QueueExamination], None]) -> None:
        try:
            step(examined[name])
        except SlotMovingError as fault:
            if len(out.queues) == 1:
                raise
            del examined[name]
            out.unjudged.append(name)
            out.notes.append(f"{name}: not judged: {fault.what}")

    for name in out.queues:
        guarded(name, QueueExamination.check_types)
    for key in _keys(server, out.queues):
        out.looked += 1
        if progress is not None:
            progress(out.looked, 0)
        queue = key_names.queue_of_key(key)
        if queue in examined:
            guarded(queue, lambda one, key=key: one.take(key))  # type: ignore[misc]  # bound as it is now
    for name in list(examined):
        guarded(name, QueueExamination.finish)
    if any(one.suspects for one in examined.values()) and settle > 0:
        time.sleep(settle)
    for number, name in enumerate(list(examined), 1):
        if progress is not None:
            progress(number, len(out.queues))
        guarded(name, lambda one: out.findings.extend(one.confirmed()))
    found, notes = examine_flows(
        server, {name: list(dict.fromkeys(one.of_flows)) for name, one in examined.items()}, settle
    )
    out.findings += found
    out.notes += notes
    for one in examined.values():
        out.notes += [*one.notes, *map(_said_of, repeat(one.keys.queue), one.ordinary.items())]
        out.unlisted |= {(one.keys.queue, kind): n for kind, n in one.unlisted.items()}
    _fence_notes(server, out)
    return out


def _said_of(queue: str, ordinary: tuple[str, int]) -> str:
    kind, count = ordinary
    return f"{queue}: {count} of {kind}: {KINDS[kind].meaning}; `--also {kind}` lists them, and with --fix deletes them"


def _keys(server: Server, queues: Sequence[str]) -> Iterator[bytes]:
    if len(queues) == 1:
        yield from server.scan(keys_of(queues[0]).all_pattern())
    else:
        yield from server.scan(EVERY_KEY)


def _fence_notes(server: Server, out: Diagnosis) -> None:
    """The wire fence is reported and never written; nothing else may stand beside it."""
    fence = server.read("GET", keyspace.VERSION_KEY)
    if fence is None:
        out.notes.append(f"{keyspace.VERSION_KEY} is absent, which is fine: no worker has claimed a wire version")
    else:
        out.notes.append(f"{keyspace.VERSION_KEY} is {fence.decode('utf-8', 'backslashreplace')}")
    for key in sorted(set(server.scan("{emq}:*"))):
        if key != keyspace.VERSION_KEY.encode():
            out.findings.append(Finding("", "reserved_key", key, "beside the version"))
