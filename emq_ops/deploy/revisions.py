"""Revisions: what was applied, when, by whom. A revision is never changed; the newest one is in force."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from emq_ops.deploy.document import Document
from emq_ops.ledger.deploy_schema import revisions
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.errors import BadInputError

_HEAD = [c for c in revisions.c if c.name not in ("document", "plan")]


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


def current(ledger: Ledger) -> Revision | None:
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
    return Revision(_head(row), Document.from_text(unpack(row["document"])), row["plan"])


def _head(row: Any) -> Head:
    return Head(
        int(row["number"]),
        int(row["made_ms"]),
        row["kind"],
        row["who"],
        json.loads(row["files"]),
        row["sha256"],
        row["why"],
        json.loads(row["summary"]),
    )


def history(ledger: Ledger, limit: int = 50) -> list[Head]:
    """The newest revisions, newest first."""
    with ledger.read() as connection:
        wanted = select(*_HEAD).order_by(revisions.c.number.desc()).limit(limit)
        rows = connection.execute(wanted).mappings().all()
    return [_head(row) for row in rows]


def add(
    connection: Connection,
    document: Document,
    plan: dict[str, Any],
    *,
    base: int | None,
    kind: str,
    who: str,
    files: list[dict[str, str]],
    now_ms: int,
    why: str = "",
) -> int:
    """Adds the revision after `base` and answers its number. The number is the key: two appliers can't both have it."""
    number = (base or 0) + 1
    connection.execute(
        revisions.insert().values(
            number=number,
            made_ms=now_ms,
            kind=kind,
            who=who,
            files=json.dumps(files),
            sha256=document.sha256,
            document=pack(document.text),
            summary=json.dumps(plan["summary"]),
            plan=pack(json.dumps(plan)),
            why=why,
        )
    )
    return number
