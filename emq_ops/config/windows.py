"""The config's maintenance windows as passes take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from emq_ops.config.checks import instant, opening
from emq_ops.config.models import WindowSection
from emq_ops.config.policies import checked
from emq_ops.ledger.holds import Window
from emq_ops.policy.triggers import between

LOOK_BACK_MS = 7 * 86_400_000
"""Windows that ended longer ago are not looked for: whatever lapsed in them was swept long since."""

SKEW_MS = 86_400_000
"""So far the host's clock may be behind the server's."""


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def sections_of(config: Mapping[str, Any], env: Mapping[str, str]) -> tuple[WindowSection, ...]:
    """The ``maintenance:`` of a revision's config. Raises BadInputError where a reference can't be resolved."""
    return tuple(
        checked(WindowSection, section, env, f"maintenance[{number}]")
        for number, section in enumerate(config.get("maintenance") or ())
    )


def windows(sections: Iterable[WindowSection], now_ms: int) -> list[Window]:
    """The windows that have begun at `now_ms` (unix ms) and did not end more than a week before."""
    found: list[Window] = []
    for section in sections:
        for start, end in _spans(section, now_ms):
            if start <= now_ms and end >= now_ms - LOOK_BACK_MS:
                found.append(Window(section.queues, start, end, holder="config"))
    return found


def around(sections: Iterable[WindowSection], host_ms: int) -> list[Window]:
    """The windows for a pass, which takes those that have begun by the server's clock: where the host's (`host_ms`) is
    behind, these are more than have begun by it."""
    return windows(sections, host_ms + SKEW_MS)


def _spans(section: WindowSection, now_ms: int) -> Iterable[tuple[int, int]]:
    length = section.length or 0
    if section.cron is not None:
        trigger = opening(section)
        begun = between(trigger, _at(now_ms - LOOK_BACK_MS - length), _at(now_ms))
        return [(_ms(start), _ms(start) + length) for start in begun]
    if section.start is None:
        return []
    start = _ms(instant(section.start))
    return [(start, _ms(instant(section.until)) if section.until is not None else start + length)]
