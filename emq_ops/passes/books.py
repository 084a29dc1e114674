"""Flow parents among a trim's victims: their books are kept with the death before they go, and the trim compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emq_archive.model import Pair
from emq_ops.ledger import deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.snapshot import pack_whole
from emq_ops.ledger.victims import Victim
from emq_ops.ledger.whole import FLOW_BOOKS, Whole
from emq_ops.protocol.keyspace import Keys
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

ANY = "*"
"""In place of a digest: whatever the books are (for a prediction)."""
_READ_BUDGET = 4 * 1024 * 1024
_FACT = b"flow:"


@dataclass(frozen=True, slots=True)
class Books:
    """A flow parent's books. `digest`: of ``lua/lib/dead.lua``; `facts`: the books as an archive takes them."""

    digest: str
    facts: tuple[Pair, ...]


def keep_books(server: Server, ledger: Ledger, keys: Keys, victims: Sequence[Victim]) -> dict[str, Books]:
    """Puts those of `victims` that have books into the ledger, whole; answers their books. Others, and those whose
    books can't be read, are left out: the trim then finds that they differ."""
    kept: dict[str, Books] = {}
    todo = [victim.job for victim in victims if victim.flow]
    while todo:
        args: list[Arg] = [keys.base, _READ_BUDGET, *todo[:500]]
        replies = server.run(load("dead_books"), [keys.dead], args, readonly=True)
        bodies: dict[str, tuple[bytes, None]] = {}
        for job, reply in zip(todo, replies, strict=False):
            if reply and reply[0]:
                digest, row, logs, dependencies, *books = reply
                whole = Whole(tuple(row), tuple(logs), dependencies, tuple(tuple(book) for book in books))
                bodies[job] = pack_whole(whole), None
                kept[job] = Books(digest.decode("ascii"), tuple(_facts(whole)))
        if bodies:
            with ledger.write() as connection:
                deaths.keep_whole(connection, keys.queue, bodies)
        todo = todo[len(replies) :]
    return kept


def _facts(whole: Whole) -> list[Pair]:
    facts = [] if whole.dependencies is None else [(_FACT + b"dependencies", whole.dependencies)]
    for name, book in zip(FLOW_BOOKS, whole.books, strict=True):
        facts += [(_FACT + name.encode() + b":" + n, v) for n, v in zip(book[::2], book[1::2], strict=True)]
    return facts


def of_facts(row: Sequence[bytes], logs: Sequence[bytes], facts: Sequence[Pair]) -> Whole:
    """A job from what an archive has of it; `facts` with the names that `Books.facts` gave them."""
    dependencies: bytes | None = None
    books: dict[str, list[bytes]] = {name: [] for name in FLOW_BOOKS}
    for name, value in facts:
        if name == _FACT + b"dependencies":
            dependencies = value
        for book, texts in books.items():
            led = _FACT + book.encode() + b":"
            if name.startswith(led):
                texts += [name[len(led) :], value]
    return Whole(tuple(row), tuple(logs), dependencies, tuple(tuple(texts) for texts in books.values()))


def digests(victims: Sequence[Victim], kept: Mapping[str, Books] | None) -> list[str]:
    """What the trim compares each victim's books with. `kept` None: nothing is compared."""
    if kept is None:
        return [ANY] * len(victims)
    return [kept[victim.job].digest if victim.job in kept else "" for victim in victims]
