"""Bringing a local database to this version's schema, whole or not at all."""

from __future__ import annotations

from sqlalchemy import Engine

from emq_archive.database import Migrations
from emq_archive.errors import LocalError
from emq_archive.local.engine import shown, transaction
from emq_archive.local.tables import metadata


def _newer(at: str, engine: Engine) -> LocalError:
    return LocalError(
        f"the local database is of a newer version of emq-ops (schema {at})",
        where=shown(engine.url),
        fix="use that version, or another --local",
    )


LOCAL = Migrations("emq_archive.local", "archive_version", 7_305_601_120, metadata, transaction, _newer)
