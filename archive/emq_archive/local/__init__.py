"""The local database: SQLite on one host, PostgreSQL for several."""

from emq_archive.local.store import SqlStore, open_local

__all__ = ["SqlStore", "open_local"]
