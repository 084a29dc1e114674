"""Records for tests of the ledger."""

from __future__ import annotations

import dataclasses

from emq_ops.ledger.deaths import Death

NOW = 1_800_000_000_000


def death(job: str, **more: object) -> Death:
    return dataclasses.replace(Death(job, attempts=1, stalls=0, first_seen_ms=NOW), **more)
