"""What PostgreSQL's faults are called, told apart by SQLSTATE: the same words for the local archive and the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

Kind = Literal["away", "full", "locked", "refused"]


@dataclass(frozen=True, slots=True)
class Told:
    """A fault in words. `kind`: it can't be reached (away), its disk is full, another session is in the way (locked),
    or it does not do what we ask (refused). After each the transaction did not happen, unless the connection went
    while it was committed."""

    kind: Kind
    what: str
    fix: str


_TRY_AGAIN = "try again; if it stays so, see what else works in this database (pg_stat_activity)"
_STATES: dict[str, tuple[Kind, str, str]] = {
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
    "53100": ("full", "no room on the disk", "make room"),
    "53300": ("away", "{said}", "raise max_connections, or close idle sessions"),
    "55P03": ("locked", "another session keeps what we need locked", "wait, or end it"),
    "57014": ("locked", "a statement took longer than it may ({said})", _TRY_AGAIN),
}
_REFUSALS = (
    # The driver has no SQLSTATE for what is said before a session begins.
    ("too many", "raise max_connections, or close idle sessions"),
    ("connection slots are reserved", "raise max_connections, or close idle sessions"),
    ("does not exist", "make it, or check the URL"),
    ("authentication failed", "check user and password"),
    ("no pg_hba.conf entry", "let this host, user and database in by pg_hba.conf"),
    ("starting up", "try again in a moment"),
    ("shutting down", "try again in a moment"),
    ("not yet accepting", "try again in a moment"),
    ("recovery", "try again in a moment"),
)


def tell(fault: SQLAlchemyError) -> Told | None:
    """The fault in words; None where it is none that has its own (a fault of a statement)."""
    cause: Any = fault.orig if isinstance(fault, DBAPIError) else None
    text = str(cause or fault)
    said = (text.splitlines() or [type(fault).__name__])[0]
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
