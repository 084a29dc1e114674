"""What differs between our databases: their names, how long they are waited for, what to do about a lost one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError

from emq_ops.protocol.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of database. `name`: as messages say it; `option`: the flag that names another one; `application`: as
    pg_stat_activity shows us; `when_lost`: what to do about a file that is gone or damaged.

    In seconds: `busy`, for another writer; `statement`, for any one statement; `idle`, in a transaction without one,
    after which PostgreSQL ends it, so that a frozen process keeps no lock for ever. `pool`: sizes for create_engine.
    """

    name: str
    option: str
    application: str
    when_lost: str
    busy: float
    statement: float
    idle: float
    pool: Mapping[str, int] = field(default_factory=dict)

    def parse(self, url: str) -> URL:
        """`url` checked: ``sqlite:///file`` or ``postgresql://...``. Raises BadInputError."""
        fix = "sqlite:///file.db or postgresql://host/name"
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            raise BadInputError("no database URL", where=self.name, fix=fix) from None
        backend = parsed.get_backend_name()
        if backend in ("postgresql", "postgres"):
            return parsed.set(drivername="postgresql+psycopg")
        if backend != "sqlite":
            raise BadInputError(f"can't be on '{backend}'", where=self.name, fix=fix)
        if not parsed.database or parsed.database == ":memory:":
            raise BadInputError("must outlive the process", where=self.name, fix="name a file: sqlite:///file.db")
        try:
            parsed.get_dialect()().create_connect_args(parsed)
        except (ArgumentError, ValueError) as fault:
            told = f"options that can't be taken: {fault}"
            raise BadInputError(told, where=self.name, fix="see what follows the ?") from None
        return parsed


def shown(url: URL | str) -> str:
    """The URL as users write it, without its password."""
    parsed = make_url(url) if isinstance(url, str) else url
    return parsed.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=True)


def file_of(url: str) -> str | None:
    """The file of a SQLite database; None for another one."""
    return make_url(url).database if url.startswith("sqlite") else None


def for_reading(url: str) -> str:
    """The URL by which the SQLite file of `url` is only read: nothing beside it is made, changed or tightened.
    Without a write-ahead log nobody has it open, and SQLite is told so: else it would make one."""
    path = Path(file_of(url) or "").expanduser().absolute()
    only = {"mode": "ro", "uri": "true"} | ({} if Path(f"{path}-wal").exists() else {"immutable": "1"})
    return URL.create("sqlite", database=f"file:{quote(str(path))}", query=only).render_as_string()
