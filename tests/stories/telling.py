"""What the audits say of a story, asked as an operator asks."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cli import emq

NUMBERS = ("kind", "in_flight", "recovered", "exempted", "died", "vanished")


def ops(*argv: str) -> Any:
    """The JSON that a command says; it must succeed."""
    ran = emq(*argv, "--output", "json")
    assert ran.code == 0, ran
    return json.loads(ran.out)


def numbers(row: dict[str, Any]) -> tuple[Any, ...]:
    """The NUMBERS of an interruption as it is told; each also says when it started and ended."""
    assert row["started"] <= row["ended"]
    return tuple(row[name] for name in NUMBERS)


def interruptions(state: str) -> list[dict[str, Any]]:
    """What ``audit restarts`` tells from the ledger alone."""
    told: list[dict[str, Any]] = ops("audit", "restarts", "--state", state)["interruptions"]
    return told
