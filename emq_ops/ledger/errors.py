"""Faults of the state database: what an operator must do differs, so each has a class."""

from __future__ import annotations

from emq_ops.protocol.errors import EmqError, UnreachableError


class LedgerError(EmqError):
    """The state database refuses: read-only, damaged, of another schema, not a state database at all."""


class LedgerLockedError(LedgerError):
    """Another process kept the database locked for longer than we wait. Nothing of ours was written."""


class LedgerFullError(LedgerError):
    """No room on the disk of the state database. Nothing of the transaction was kept."""


class LedgerUnreachableError(UnreachableError):
    """The state database does not answer, or refuses the connection."""
