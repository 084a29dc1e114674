"""An archive in memory: what a trim asks of one, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from emq_archive.deadjob import dead_digest
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server


@dataclass
class Archived:
    job: str
    names: tuple[bytes, ...]
    digest: str


@dataclass
class Receipt:
    proven: dict[str, Archived] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    folded: int = 0


class Shelf:
    """An archive in memory: what the trim asks of one, and no more. `before`, `after`: what else happens while a page
    is archived."""

    def __init__(
        self,
        server: Server,
        queue: str,
        refuse: Sequence[str] = (),
        before: Callable[[Sequence[str]], object] = lambda _jobs: None,
        after: Callable[[Receipt], object] = lambda _receipt: None,
    ) -> None:
        self.q, self.refuse = Queue(server, queue), refuse
        self._before, self._after = before, after
        self.rows: dict[str, list[bytes]] = {}
        self.facts: dict[str, Sequence[tuple[bytes, bytes]]] = {}

    def archive(
        self, jobs: Sequence[str], facts: Mapping[str, Sequence[tuple[bytes, bytes]]], *, now_ms: int
    ) -> Receipt:
        self._before(jobs)
        receipt = Receipt()
        for job in jobs:
            if job in self.refuse:
                receipt.failed[job] = "refused"
                continue
            row = self.q.server.read("HGETALL", self.q.keys.row(job))
            logs = self.q.server.read("LRANGE", self.q.keys.book(job, "logs"), 0, -1)
            self.rows[job], self.facts[job] = row, facts[job]
            receipt.proven[job] = Archived(job, tuple(row[::2]), dead_digest(row[1::2], logs))
            receipt.folded += 1
        self._after(receipt)
        return receipt
