"""Revisions: what was applied, when, by whom. A revision is never changed; the newest one is in force."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from emq_ops.database.engine import Database
from emq_ops.database.records import Records
from emq_ops.deploy.document import Document
from emq_ops.ledger.deploy_schema import revisions
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Head:
    """What a list of revisions shows. `files`: path and SHA-256 of each, lowest first; `sha256`: of the document."""

    number: int
    made_ms: int
    kind: str
    who: str
    files: list[dict[str, str]]
    sha256: str
    why: str = ""
    summary: dict[str, int] = field(default_factory=dict)


_HEADS = Records(revisions, Head, packed=["files", "summary"])


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision whole: `document` says what is to run, `plan` (the JSON of `render.as_json`) what led here."""

    head: Head
    document: Document
    packed_plan: bytes = field(repr=False)

    @property
    def plan(self) -> dict[str, Any]:
        """What led here."""
        found: dict[str, Any] = json.loads(unpack(self.packed_plan))
        return found

    @property
    def number(self) -> int:
        return self.head.number


def pack(text: str) -> bytes:
    """`text` as it is kept."""
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 6)


def unpack(raw: bytes) -> str:
    """Back from `pack`."""
    return zlib.decompress(raw).decode("utf-8", "surrogatepass")


def current_number(connection: Connection) -> int | None:
    """The newest revision's number, None before the first. Cheap: a daemon asks twice a second."""
    found = connection.execute(select(func.max(revisions.c.number))).scalar()
    return None if found is None else int(found)


def current(ledger: Database) -> Revision | None:
    """The revision in force, None before the first."""
    with ledger.read() as connection:
        number = current_number(connection)
        return None if number is None else _whole(connection, number)


def revision(ledger: Ledger, number: int) -> Revision:
    """One revision; raises BadInputError where there is none of that number."""
    with ledger.read() as connection:
        found = _whole(connection, number)
        last = current_number(connection)
    if found is None:
        known = f"revisions are 1 to {last}" if last else "nothing was applied yet"
        raise BadInputError(f"no revision {number}", fix=f"{known}; see `emq-ops history`")
    return found


def _whole(connection: Connection, number: int) -> Revision | None:
    row = connection.execute(select(revisions).where(revisions.c.number == number)).mappings().first()
    if row is None:
        return None
    return Revision(_HEADS.of(row), Document.from_text(unpack(row["document"])), row["plan"])


def history(ledger: Ledger, limit: int = 50) -> list[Head]:
    """The newest revisions, newest first."""
    with ledger.read() as connection:
        return _HEADS.all(connection, _HEADS.select.order_by(revisions.c.number.desc()).limit(limit))


def add(connection: Connection, head: Head, document: Document, plan: dict[str, Any]) -> None:
    """Adds a revision. The number is the key: two appliers can't both have it."""
    whole = {"document": pack(document.text), "plan": pack(json.dumps(plan))}
    connection.execute(revisions.insert().values(**_HEADS.values(head), **whole))
