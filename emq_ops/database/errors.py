"""Faults of a database: what an operator must do differs, so each has a class."""

from __future__ import annotations

from emq_ops.protocol.errors import EmqError, UnreachableError


class DatabaseError(EmqError):
    """The database refuses: read-only, damaged, of a newer schema, none of ours at all."""


class DatabaseLockedError(DatabaseError):
    """Another session kept the database locked for longer than we wait. Nothing of ours was written."""


class DatabaseFullError(DatabaseError):
    """No room on the disk of the database. Nothing of the transaction was kept."""


class DatabaseUnreachableError(UnreachableError):
    """The database does not answer, or refuses the connection."""
