"""What an operator asked for that stands now: holds, in which no pass runs, and maintenance windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from emq_ops.config.windows import sections_of, windows
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import instant
from emq_ops.ledger import holds
from emq_ops.ledger.holds import Hold, Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.globs import matches

RestrictionKind = Literal["held", "maintenance"]
FIELDS = tuple(f"{kind}_{name}" for kind in ("held", "maintenance") for name in ("until_ms", "by", "why"))


@dataclass(frozen=True, slots=True)
class ActiveRestriction:
    """A hold or a window that has begun and is not over. `queues`: a selector (`emq_ops.protocol.globs`) of a window,
    a hold's queue by its name; `until_ms`: unix ms; `by`: who asked for it, ``config`` for a window of the file."""

    kind: RestrictionKind
    queues: str
    until_ms: int
    by: str
    why: str = ""

    def covers(self, queue: str) -> bool:
        """Whether it is for this queue."""
        return self.queues == queue if self.kind == "held" else matches(self.queues, queue)

    def described(self) -> str:
        """``held until 2026-03-01T22:00:00Z by ops@web1:4711 (incident 7)``"""
        word = "held" if self.kind == "held" else "in maintenance"
        return f"{word} {format_span(self.until_ms, self.by, self.why)}"


def format_span(until_ms: int, by: str, why: str) -> str:
    """``until 2026-03-01T22:00:00Z by ops@web1:4711 (incident 7)``"""
    return f"until {instant(until_ms)} by {by or 'nobody known'}" + (f" ({why})" if why else "")


def asked_for(ledger: Ledger) -> list[Hold | Window]:
    """Every hold and window of the ledger, whether it stands or not."""
    return [*holds.all_holds(ledger), *holds.all_windows(ledger)]


def active_restrictions(
    ledger: Ledger, document: Document | None, env: Mapping[str, str], now_ms: int
) -> list[ActiveRestriction]:
    """What stands at `now_ms` (server clock, unix ms), holds first: of the ledger, and windows of the applied config
    (`document`)."""
    held, opened = holds.all_holds(ledger), holds.all_windows(ledger)
    sections = () if document is None else sections_of(document.data["config"], env)
    if not (held or opened or sections):
        return []
    ours = windows(sections, now_ms)
    found = [
        ActiveRestriction("held", one.queue, one.until_ms, one.holder, one.why) for one in held if one.until_ms > now_ms
    ]
    return found + [
        ActiveRestriction("maintenance", one.queues, one.end_ms, one.holder, one.why)
        for one in (*opened, *ours)
        if one.start_ms <= now_ms < one.end_ms
    ]


def fields_of(queue: str, found: Iterable[ActiveRestriction]) -> dict[str, Any]:
    """FIELDS of a queue's row: of each kind the one that ends last, None where there is none."""
    row: dict[str, Any] = dict.fromkeys(FIELDS)
    for one in sorted(found, key=lambda one: one.until_ms):
        if one.covers(queue):
            row |= {f"{one.kind}_until_ms": one.until_ms, f"{one.kind}_by": one.by, f"{one.kind}_why": one.why}
    return row
