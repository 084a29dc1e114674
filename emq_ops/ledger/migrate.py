"""Bringing a state database to this version's schema, whole or not at all."""

from __future__ import annotations

from sqlalchemy import Engine

from emq_archive.database import Migrations
from emq_ops.ledger.engine import shown, transaction
from emq_ops.ledger.errors import LedgerError
from emq_ops.ledger.schema import metadata


def _newer(at: str, engine: Engine) -> LedgerError:
    return LedgerError(
        f"the state database is of a newer version of emq-ops (schema {at})",
        where=shown(engine.url),
        fix="use that version, or another --state",
    )


STATE = Migrations("emq_ops.ledger", "ledger_version", 7_305_601_119, metadata, transaction, _newer)
