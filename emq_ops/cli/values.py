"""Values of options and arguments: durations, sizes, paths."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path
from typing import overload

from emq_ops.policy.scalars import parse_duration, parse_size
from emq_ops.protocol.errors import BadInputError, one_line


@overload
def duration_ms(text: str, option: str) -> int: ...
@overload
def duration_ms(text: str | None, option: str) -> int | None: ...
def duration_ms(text: str | None, option: str) -> int | None:
    """Returns a duration (``30s``) as ms; None where the option was not given. Raises BadInputError."""
    return None if text is None else _parsed(parse_duration, text, option, "duration")


def size_bytes(text: str, option: str) -> int:
    """Returns a size (``64MiB``) in bytes. Raises BadInputError."""
    return _parsed(parse_size, text, option, "size")


def instant_ms(text: str, option: str, *, ahead: bool = False) -> int:
    """Returns an instant as unix ms: ``10:00`` (UTC, the last time that it was so late, or `ahead` the next one), or a
    date with a time, UTC where it names no zone. Raises BadInputError."""
    now = datetime.now(UTC)
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            at = datetime.combine(now.date(), time_of_day.fromisoformat(text.zfill(5)), UTC)
            at += timedelta(days=(at <= now) if ahead else -(at > now))
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except ValueError:
        fix = "such as 10:00 or 2026-03-01T10:00:00Z"
        raise BadInputError(f"'{one_line(text)}' is no instant", where=option, fix=fix) from None
    return int(at.timestamp() * 1000)


def _parsed(parse: Callable[[str], int], text: str, option: str, kind: str) -> int:
    try:
        return int(parse(text))
    except ValueError as fault:
        raise BadInputError(f"'{one_line(text)}' is no {kind}", where=option, fix=str(fault)) from None


def file_of(text: str) -> Path:
    """Returns a path of the command line. Raises BadInputError for an empty one."""
    if not text:
        raise BadInputError("an empty path")
    return Path(text)


def now_ms() -> int:
    """Returns the host's clock, unix ms."""
    return time.time_ns() // 1_000_000
