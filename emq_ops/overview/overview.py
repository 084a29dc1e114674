"""Queues as an operator lists them: a look at each, with what the state knows of it, and what is wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.ledger import death_summaries, holds
from emq_ops.ledger.holds import Hold
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.health import Problem, problems
from emq_ops.overview.look import QueueLook, look_at_queues
from emq_ops.protocol.errors import EmqError, UnreachableError
from emq_ops.protocol.server import Server


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """A queue and what is known of it. `look`: None where it could not be read; `fault` says why then. `hold`: the one
    that stands; `last_death_ms`: when the newest of its dead was first seen, as the ledger has it; `problems`: what is
    wrong, the worst first."""

    queue: str
    look: QueueLook | None
    fault: EmqError | None
    hold: Hold | None
    protected: bool
    last_death_ms: int | None
    problems: tuple[Problem, ...]

    @property
    def state(self) -> str:
        """What keeps it from its usual work, in a word or two; empty where nothing does."""
        words = ["paused"] if self.look is not None and self.look.paused else []
        words += ["held"] if self.hold is not None else []
        words += ["protected"] if self.protected else []
        return " ".join(words)

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers: the columns of `queue ls`, instants in unix ms, lengths in ms."""
        look, now = self.look, self.look.now_ms if self.look is not None else 0

        def of(name: str) -> Any:
            return None if look is None else getattr(look, name)

        def age(at_ms: int | None) -> int | None:
            return None if at_ms is None else now - at_ms

        return {
            "queue": self.queue,
            "waiting": of("waiting"),
            "pending": of("pending"),
            "in_lanes": of("in_lanes"),
            "more_lanes": of("more_lanes"),
            "lanes": of("lanes"),
            "active": of("active"),
            "scheduled": of("scheduled"),
            "dead": of("dead"),
            "oldest_waiting_ms": age(of("oldest_ms")),
            "oldest_lease_ms": age(of("deadline_ms")),
            "lapsed": of("lapsed"),
            "overdue": of("overdue"),
            "paused": of("paused"),
            "held_until_ms": None if self.hold is None else self.hold.until_ms,
            "held_by": None if self.hold is None else self.hold.holder,
            "held_why": None if self.hold is None else self.hold.why,
            "protected": self.protected,
            "last_death_ms": age(self.last_death_ms) if look is not None else None,
            "archive_lag_ms": of("lag_ms"),
            "leader": of("leader"),
            "problems": [problem.text for problem in self.problems],
            "error": None if self.fault is None else str(self.fault),
        }


def standings(
    server: Server,
    queues: Iterable[str],
    ledger: Ledger | None = None,
    *,
    protected: Collection[str] = (),
    streams: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[QueueStanding]:
    """How each queue stands, in order. `ledger`: None where there is no state: then nobody knows of holds and deaths.
    `streams`: as `look_at_queues` takes them. A queue that can't be read is one with a fault; raises what the ledger
    raises, and UnreachableError where the server is away."""
    names = list(queues)
    held: dict[str, Hold] = {}
    newest: dict[str, int] = {}
    if ledger is not None:
        held = {one.queue: one for one in holds.all_holds(ledger)}
        with ledger.read() as connection:
            newest = death_summaries.newest(connection, names)
    for queue, found in zip(names, look_at_queues(server, names, streams), strict=True):
        if not isinstance(found, QueueLook):
            fault = found[1]
            if server.single and isinstance(fault, UnreachableError):
                raise fault
            what = Problem("unreadable", str(fault), f"emq-ops doctor {queue}")
            yield QueueStanding(queue, None, fault, held.get(queue), queue in protected, newest.get(queue), (what,))
            continue
        hold = held.get(queue)
        if hold is not None and hold.until_ms <= found.now_ms:
            hold = None
        last = newest.get(queue)
        wrong = tuple(problems(found, hold, last))
        yield QueueStanding(queue, found, None, hold, queue in protected, last, wrong)
