"""Policies as rows: plain values for the ledger, for requests and for JSON. Their names never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from emq_ops.policy.models import ArchivePolicy, Policy, Redaction
from emq_ops.policy.schedule import Schedule
from emq_ops.policy.triggers import Cron, Interval
from emq_ops.protocol.errors import BadInputError


def as_row(policy: Policy) -> dict[str, Any]:
    """A policy as plain values."""
    return _plain(policy)


def from_row(kind: type[Policy], row: Mapping[str, Any]) -> Policy:
    """Back from `as_row`. Raises BadInputError for what is none."""
    values = dict(row)
    try:
        if "schedule" in values:
            values["schedule"] = _schedule(values["schedule"])
        if "archiving" in values:
            values["archiving"] = _archiving(values["archiving"])
        return kind(**values)
    except (TypeError, KeyError) as fault:
        raise BadInputError(f"no policy: {fault}", fix="it was written by another version of emq-ops") from fault


def _plain(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, Schedule):
        trigger = found.pop("trigger")
        cron = trigger if isinstance(trigger, Cron) else None
        timing = {
            "every_ms": trigger.ms if isinstance(trigger, Interval) else None,
            "cron": cron.line if cron else None,
            "zone": cron.zone if cron else "UTC",
        }
        return timing | found
    if isinstance(value, ArchivePolicy):
        redact = found.pop("redact") or Redaction()
        kept = {"redact_drop": list(redact.drop), "redact_hash": list(redact.hash), "redact_salt": redact.salt or ""}
        return found | kept
    nested = {name: _plain(below) for name, below in found.items() if isinstance(below, Schedule | ArchivePolicy)}
    return found | nested


def _schedule(row: Mapping[str, Any]) -> Schedule:
    every, cron, zone = (row.get(name) for name in ("every_ms", "cron", "zone"))
    if (every is None) == (cron is None):
        raise BadInputError("a schedule needs an interval or a cron expression, one of the two", fix="every: 30s")
    rest = {name: value for name, value in row.items() if name not in ("every_ms", "cron", "zone")}
    return Schedule(Interval(every) if every is not None else Cron(str(cron), zone or "UTC"), **rest)


def _archiving(row: Mapping[str, Any]) -> ArchivePolicy:
    drop, hashed, salt = (row.get(f"redact_{name}") or () for name in ("drop", "hash", "salt"))
    redact = Redaction(tuple(drop), tuple(hashed), salt or None)
    rest = {name: value for name, value in row.items() if not name.startswith("redact_")}
    return ArchivePolicy(**rest, redact=None if redact == Redaction() else redact)
