"""What the faults of both databases are called: told apart by SQLSTATE, or by SQLite's name of the error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from emq_ops.database.errors import DatabaseError, DatabaseFullError, DatabaseLockedError, DatabaseUnreachableError
from emq_ops.database.profile import Profile
from emq_ops.protocol.errors import ROTATED

FaultKind = Literal["away", "full", "locked", "refused"]


_CLASSES: dict[FaultKind, type[DatabaseError] | type[DatabaseUnreachableError]] = {
    "away": DatabaseUnreachableError,
    "full": DatabaseFullError,
    "locked": DatabaseLockedError,
    "refused": DatabaseError,
}


@dataclass(frozen=True, slots=True)
class Told:
    """A fault in words. `kind`: it can't be reached (away), its disk is full, another session is in the way (locked),
    or it does not do what we ask (refused). After each the transaction did not happen, unless the connection went
    while it was committed."""

    kind: FaultKind
    what: str
    fix: str


_TRY_AGAIN = "try again; if it stays so, see what else works in this database (pg_stat_activity)"
_NO_ROOM = "no room on the disk of the database"
_MAKE_ROOM = "make room there; nothing of this transaction was kept"
_STATES: dict[str, tuple[FaultKind, str, str]] = {
    "25006": (
        "refused",
        "the database takes no writes",
        "give the address of the primary; on it, see default_transaction_read_only of database and role",
    ),
    "25P03": ("refused", "the server ended our transaction: {said}", "raise that timeout for our role"),
    "25P04": ("refused", "the server ended our transaction: {said}", "raise transaction_timeout for our role"),
    "40001": ("locked", "another session wrote the same at the same time", _TRY_AGAIN),
    "40P01": ("locked", "another session wrote the same at the same time", _TRY_AGAIN),
    "42501": ("refused", "{said}", "grant our role this right; the first start of a version makes tables"),
    "53100": ("full", _NO_ROOM, _MAKE_ROOM),
    "53300": ("away", "{said}", "raise max_connections, or close idle sessions"),
    "55P03": ("locked", "another session keeps what we need locked", "wait, or end it"),
    "57014": ("locked", "a statement took longer than it may ({said})", _TRY_AGAIN),
}
_REFUSALS = (
    # The driver has no SQLSTATE for what is said before a session begins.
    ("too many", "raise max_connections, or close idle sessions"),
    ("connection slots are reserved", "raise max_connections, or close idle sessions"),
    ("does not exist", "make it, or check the URL"),
    ("authentication failed", f"check user and password; {ROTATED}"),
    ("no pg_hba.conf entry", "let this host, user and database in by pg_hba.conf"),
    ("starting up", "try again in a moment"),
    ("shutting down", "try again in a moment"),
    ("not yet accepting", "try again in a moment"),
    ("recovery", "try again in a moment"),
)


_SQLITE: tuple[tuple[tuple[str, ...], Told], ...] = (
    (("SQLITE_BUSY", "SQLITE_LOCKED"), Told("locked", "another process keeps the database locked", "wait, or end it")),
    (("SQLITE_FULL", "SQLITE_IOERR_WRITE"), Told("full", _NO_ROOM, _MAKE_ROOM)),
    (
        ("SQLITE_IOERR",),
        Told("refused", "the database file can't be used ({said})", "check the file, its disk and its room"),
    ),
    (("SQLITE_READONLY",), Told("refused", "the database is read-only", "check the rights of the file and its folder")),
    (("SQLITE_CANTOPEN",), Told("refused", "can't open the database file", "check the path and rights")),
)
_CURED_BY_RECONNECTING = ("08", "25006", "57P0")
"""A session that turned read-only belongs to a server that is the primary no longer."""


def ends_session(cause: BaseException | None) -> bool:
    """Whether the session that PostgreSQL told this fault in is of no use any more."""
    return str(getattr(cause, "sqlstate", None) or "").startswith(_CURED_BY_RECONNECTING)


def is_missing_table(fault: SQLAlchemyError) -> bool:
    """Whether a statement named a table that is not there."""
    cause: Any = fault.orig if isinstance(fault, DBAPIError) else None
    if getattr(cause, "sqlstate", None) == "42P01":
        return True
    # SQLite has no code of its own for it.
    return getattr(cause, "sqlite_errorname", "") == "SQLITE_ERROR" and str(cause).startswith("no such table")


def as_ours(fault: SQLAlchemyError, where: str, profile: Profile) -> DatabaseError | DatabaseUnreachableError:
    """A fault of a database as one of our errors."""
    cause: Any = fault.orig if isinstance(fault, DBAPIError) else None
    said = _first_line(cause or fault)
    name = str(getattr(cause, "sqlite_errorname", ""))
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return DatabaseError(f"damaged, or no SQLite database ({said})", where=where, fix=profile.when_lost)
    if name and is_missing_table(fault):
        return lost(said, where, profile)
    told = next((told for names, told in _SQLITE if name.startswith(names)), None) if name else _tell(fault, said)
    if told is None:
        return DatabaseError(said, where=where, fix=f"this is a fault of the {profile.name}; see its log")
    return _CLASSES[told.kind](told.what.replace("{said}", said), where=where, fix=told.fix)


def lost(said: str, where: str, profile: Profile) -> DatabaseError:
    """The file is not the one that we began with."""
    return DatabaseError(
        f"not a whole {profile.name} ({said}): was it deleted or replaced in use?",
        where=where,
        fix=f"end what uses it, then {profile.when_lost}",
    )


def _first_line(fault: BaseException) -> str:
    return (str(fault).splitlines() or [type(fault).__name__])[0]


def _tell(fault: SQLAlchemyError, said: str) -> Told | None:
    """A fault of PostgreSQL; None where it is one of a statement."""
    cause: Any = fault.orig if isinstance(fault, DBAPIError) else None
    text = str(cause or fault)
    state = str(getattr(cause, "sqlstate", None) or "")
    known = _STATES.get(state)
    if known is not None:
        kind, what, fix = known
        return Told(kind, what.format(said=said), fix)
    if state.startswith(("08", "57P")):
        return Told("away", f"the connection is gone: {said}", "check that it runs")
    if state or not isinstance(fault, OperationalError):
        return None
    if "FATAL: " not in text:
        return Told("away", f"does not answer: {said}", "check the address, and that it runs")
    refusal = text.split("FATAL: ", 1)[1].splitlines()[0].strip()
    fix = next((fix for part, fix in _REFUSALS if part in refusal), "see its log")
    return Told("away", f"refuses us: {refusal}", fix)
