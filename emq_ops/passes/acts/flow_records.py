"""Flow parents among a trim's victims: their records are kept with the death before they go, and the trim compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emq_archive.model import Pair
from emq_ops.ledger import contents
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.snapshot import FLOW_BOOKS, JobSnapshot, pack_death
from emq_ops.ledger.victims import Victim
from emq_ops.protocol.keyspace import Keys
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

ANY = "*"
"""In place of a digest: whatever the records are (for a prediction)."""
_READ_BUDGET = 4 * 1024 * 1024
_FACT = b"flow:"


@dataclass(frozen=True, slots=True)
class FlowRecords:
    """A flow parent's records. `digest`: of ``lua/lib/dead.lua``; `facts`: the records as an archive takes them."""

    digest: str
    facts: tuple[Pair, ...]


def keep_flow_records(server: Server, ledger: Ledger, keys: Keys, victims: Sequence[Victim]) -> dict[str, FlowRecords]:
    """Puts those of `victims` that have flow records into the ledger, whole; returns these records. Others, and those
    whose records can't be read, are left out: the trim then finds that they differ."""
    kept: dict[str, FlowRecords] = {}
    todo = [victim.job for victim in victims if victim.flow]
    while todo:
        args: list[Arg] = [keys.base, _READ_BUDGET, *todo[:500]]
        replies = server.run(load("dead_books"), [keys.dead], args, readonly=True)
        bodies: dict[str, tuple[bytes, None]] = {}
        for job, reply in zip(todo, replies, strict=False):
            if reply and reply[0]:
                snapshot = JobSnapshot.of_reply(*reply[1:])
                bodies[job] = pack_death(snapshot), None
                kept[job] = FlowRecords(reply[0].decode("ascii"), tuple(_facts(snapshot)))
        if bodies:
            with ledger.write() as connection:
                contents.replace_snapshots(connection, keys.queue, bodies)
        todo = todo[len(replies) :]
    return kept


def _facts(snapshot: JobSnapshot) -> list[Pair]:
    facts = [] if snapshot.dependencies is None else [(_FACT + b"dependencies", snapshot.dependencies)]
    for name, book in zip(FLOW_BOOKS, snapshot.books, strict=True):
        facts += [(_FACT + name.encode() + b":" + n, v) for n, v in zip(book[::2], book[1::2], strict=True)]
    return facts


def snapshot_of_facts(row: Sequence[bytes], logs: Sequence[bytes], facts: Sequence[Pair]) -> JobSnapshot:
    """A job from what an archive has of it; `facts` with the names that `FlowRecords.facts` gave them."""
    dependencies: bytes | None = None
    books: dict[str, list[bytes]] = {name: [] for name in FLOW_BOOKS}
    for name, value in facts:
        if name == _FACT + b"dependencies":
            dependencies = value
        for book, texts in books.items():
            led = _FACT + book.encode() + b":"
            if name.startswith(led):
                texts += [name[len(led) :], value]
    return JobSnapshot(tuple(row), tuple(logs), dependencies, tuple(tuple(texts) for texts in books.values()))


def digests_of(victims: Sequence[Victim], kept: Mapping[str, FlowRecords] | None) -> list[str]:
    """What the trim compares each victim's records with. `kept` None: nothing is compared."""
    if kept is None:
        return [ANY] * len(victims)
    return [kept[victim.job].digest if victim.job in kept else "" for victim in victims]
