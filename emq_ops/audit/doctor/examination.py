"""Looking: bounded SCAN over the queues' keys, each suspect looked at a second time before it counts.

The second look comes after a moment, for what others do in several steps (a deduplication key set before its job).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from emq_ops.audit.doctor.finding import Finding
from emq_ops.audit.doctor.queue_examination import MAX_FLIGHTS, QueueExamination
from emq_ops.protocol import keyspace
from emq_ops.protocol.keyspace import EVERY_KEY, keys_of
from emq_ops.protocol.server import Server

SETTLE_SECONDS = 0.2


@dataclass(slots=True)
class Diagnosis:
    """What an examination found. `notes`: what an operator should know, without anything to mend; `unlisted`: how many
    more of a kind there are than were listed, by queue and kind; `looked`: keys seen."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unlisted: dict[tuple[str, str], int] = field(default_factory=dict)
    queues: list[str] = field(default_factory=list)
    looked: int = 0

    @property
    def healthy(self) -> bool:
        return not self.findings


def examine(
    server: Server, queues: Sequence[str], *, settle: float = SETTLE_SECONDS, max_flights: int = MAX_FLIGHTS
) -> Diagnosis:
    """Looks at every key of `queues` (names). Changes nothing. Raises what the server raises."""
    out = Diagnosis(queues=sorted(queues))
    examined = {name: QueueExamination(server, keys_of(name), max_flights) for name in out.queues}
    for one in examined.values():
        one.check_types()
    for key in _keys(server, out.queues):
        out.looked += 1
        name = keyspace.queue_of_key(key)
        if name in examined:
            examined[name].take(key)
    suspects: list[Finding] = []
    for one in examined.values():
        one.finish()
        suspects += one.suspects
        out.notes += one.notes
        out.unlisted |= {(one.keys.queue, kind): n for kind, n in one.unlisted.items()}
    if suspects and settle > 0:
        time.sleep(settle)
    for one in examined.values():
        out.findings += one.confirmed()
    _fence_notes(server, out)
    return out


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
