"""When something runs: an interval, or a cron line in a time zone.

Pure: instants in, instants out, no clock. Instants are aware datetimes; those returned are in UTC. Cron follows cron's
own rules: 0 and 7 are Sunday, the two day fields are OR unless one starts with ``*``, a fixed time that a clock change
skips runs right after the gap, one that a clock change repeats runs once, and ``*/30`` runs every 30 real minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from emq_ops.policy.scalars import format_duration, parse_duration
from emq_ops.policy.words import nearest

MIN_INTERVAL_MS = 10
_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
EVERY_WORDS = "an interval (30s, 10m) or a cron expression with an optional time zone ('0 3 * * * Europe/Berlin')"


class Trigger(Protocol):
    """Instants in order."""

    def next_fire(self, after: datetime) -> datetime:
        """The first instant strictly after `after`, in UTC."""
        ...

    @property
    def text(self) -> str:
        """As the YAML says it."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so many ms, counted from whatever instant one starts at."""

    ms: int

    def next_fire(self, after: datetime) -> datetime:
        return after.astimezone(UTC) + timedelta(milliseconds=self.ms)

    @property
    def text(self) -> str:
        return format_duration(self.ms)


@dataclass(frozen=True, slots=True)
class Cron:
    """A five-field cron line in a named time zone."""

    line: str
    zone: str = "UTC"

    def next_fire(self, after: datetime) -> datetime:
        # Where a clock change repeats an hour, the library counts from the local time alone and can answer an
        # instant at or before `after`: go on from there.
        runs = CronSim(self.line, after.astimezone(UTC if self.zone == "UTC" else ZoneInfo(self.zone)))
        for found in runs:
            instant = found.astimezone(UTC)
            if instant > after:
                return instant
        raise ValueError(f"'{self.line}' never comes")

    @property
    def text(self) -> str:
        return self.line if self.zone == "UTC" else f"{self.line} {self.zone}"


def parse_every(text: str, zone: str | None = None) -> Trigger:
    """The trigger that `text` says: a duration, or a cron line that may end in a time zone (`zone` gives it apart).

    Raises ValueError whose text says what is wrong with it.
    """
    words = text.split()
    if not words:
        raise ValueError("it is empty")
    if words[0].startswith(("CRON_TZ=", "TZ=")) and zone is None:
        zone, words = words[0].split("=", 1)[1], words[1:]
    if len(words) == 1 and words[0][:1] != "@":
        if zone is not None:
            raise ValueError("a time zone goes with a cron expression, not with an interval")
        ms = parse_duration(words[0])
        if ms < MIN_INTERVAL_MS:
            raise ValueError(f"at least {MIN_INTERVAL_MS}ms")
        return Interval(ms)
    if len(words) < 5 and (together := _duration_of(words)):
        raise ValueError(f"write {together}")
    return _cron(tuple(words), zone)


def parse_cron(line: str, zone: str | None = None) -> Cron:
    """As `parse_every`, of a cron line alone; `zone` is UTC unless given, here or in the line."""
    found = parse_every(line, zone)
    if not isinstance(found, Cron):
        raise ValueError("a cron expression has five fields: minute, hour, day of month, month, weekday")
    return found


def _duration_of(words: list[str]) -> str | None:
    """The duration that was written with blanks in it (``1h 30m``, ``5 m``), or None."""
    together = "".join(words)
    try:
        parse_duration(together)
    except ValueError:
        return None
    return together


@lru_cache(maxsize=4096)
def _cron(words: tuple[str, ...], zone: str | None) -> Cron:
    if words and words[0].startswith("@"):
        line = _SHORTHANDS.get(words[0].lower())
        if line is None:
            raise ValueError(f"'{words[0]}' is none of {', '.join(_SHORTHANDS)}")
        words = (*line.split(), *words[1:])
    if len(words) == 6 and zone is None:
        if re.fullmatch(r"[\d*/,-]+", words[5]):
            raise ValueError("a cron expression has five fields: minute, hour, day, month, weekday (no seconds)")
        zone, words = words[5], words[:5]
    if len(words) != 5:
        raise ValueError(f"a cron expression has five fields: minute, hour, day, month, weekday; here are {len(words)}")
    cron = Cron(" ".join(words), check_zone(zone or "UTC"))
    _check_fields(words)
    try:
        cron.next_fire(datetime(2024, 1, 1, tzinfo=UTC))
    except CronSimError as fault:
        raise ValueError(_named(str(fault), words)) from None
    except OverflowError:
        raise ValueError(f"'{cron.line}' never comes") from None
    return cron


def _named(fault: str, words: tuple[str, ...]) -> str:
    field = fault.lower().removeprefix("bad ").replace("-", " ")
    for word, (name, _, _) in zip(words, _FIELDS, strict=True):
        if name == field:
            return f"the {name} '{word}' is not one that can come"
    return fault.lower()


def _check_fields(words: tuple[str, ...]) -> None:
    # The library names the field but not the value; this catches numbers out of range with both.
    for word, (name, low, high) in zip(words, _FIELDS, strict=True):
        for number in re.findall(r"(?<![/#\w])\d+(?!\w)", word):
            if not low <= int(number) <= high:
                raise ValueError(f"{name} {number} is not within {low}..{high}")


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def check_zone(name: str) -> str:
    """`name` if it is a time zone. Raises ValueError with the nearest name."""
    if name in _zones():
        return name
    close = nearest(name, _zones())
    raise ValueError(
        f"no time zone '{name}'" + (f"; did you mean '{close}'?" if close else "; take one like Europe/Berlin")
    )


def between(trigger: Trigger, after: datetime, until: datetime) -> Iterator[datetime]:
    """The instants after `after` up to and including `until`."""
    instant = trigger.next_fire(after)
    while instant <= until:
        yield instant
        instant = trigger.next_fire(instant)
