"""Durations and sizes as text with a unit, and back. Pure; a fault is a ValueError whose text says what to write."""

from __future__ import annotations

import re

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MAX_DURATION_MS = 36_525 * _MS["d"]
"""A hundred years: more is a slip of the pen."""
MAX_SIZE = 1 << 50

DURATION_PATTERN = r"^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"
SIZE_PATTERN = r"^[0-9]+(B|KiB|MiB|GiB|TiB)$"
DURATION_WORDS = "a duration with its unit, such as 250ms, 30s, 10m, 6h or 30d"
SIZE_WORDS = "a size with its unit, such as 512KiB, 64MiB or 1GiB"

_parts = re.compile(r"(\d+)(ms|s|m|h|d)")
_duration = re.compile(DURATION_PATTERN)
_size = re.compile(r"(\d+)(B|KiB|MiB|GiB|TiB)")


def parse_duration(text: str) -> int:
    """`text` (``250ms``, ``30s``, ``1h30m``: units from large to small) in ms. Raises ValueError."""
    if text and text.isascii() and _duration.fullmatch(text):
        total = sum(int(number) * _MS[unit] for number, unit in _parts.findall(text))
        if total > MAX_DURATION_MS:
            raise ValueError("at most 36525d")
        return total
    raise ValueError(_duration_hint(text))


def _duration_hint(text: str) -> str:
    if re.fullmatch(r"0+", text):
        return "write 0s"
    if re.fullmatch(r"\d+", text):
        return f"write {text}s, or {text}ms, {text}m, {text}h, {text}d, as it is meant"
    if match := re.fullmatch(r"(\d+):(\d\d)", text):
        return f"write {match[1]}m{int(match[2])}s or {match[1]}h{int(match[2])}m; a time of day is a cron expression"
    if match := re.fullmatch(r"(\d+)\.(\d+)(s|m|h|d)", text):
        ms = int(float(f"{match[1]}.{match[2]}") * _MS[match[3]])
        return f"write {format_duration(ms)}"
    if text.startswith(("-", "+")):
        return "without a sign"
    lowered = re.sub(r"\s+", "", text.lower())
    for long, short in (("millisecond", "ms"), ("sec", "s"), ("min", "m"), ("hour", "h"), ("hr", "h"), ("day", "d")):
        if match := re.fullmatch(rf"(\d+){long}[a-z]*", lowered):
            return f"write {match[1]}{short}"
    if lowered != text and _duration.fullmatch(lowered) and lowered:
        return f"write {lowered}"
    return "units are ms, s, m, h, d"


def format_duration(ms: int) -> str:
    """`ms` in the largest single unit that says it exactly."""
    for unit in ("d", "h", "m", "s"):
        if ms % _MS[unit] == 0 and ms >= _MS[unit]:
            return f"{ms // _MS[unit]}{unit}"
    return f"{ms}ms" if ms else "0s"


def parse_size(text: str) -> int:
    """`text` (``64MiB``) in bytes. Raises ValueError."""
    match = _size.fullmatch(text)
    if match and text.isascii():
        size = int(match[1]) * _BYTES[match[2]]
        if size > MAX_SIZE:
            raise ValueError("at most 1024TiB")
        return size
    if re.fullmatch(r"\d+", text):
        raise ValueError(f"write {text}B, or {text}KiB, {text}MiB, as it is meant")
    if other := re.fullmatch(r"(\d+)\s*([kKmMgGtT])i?[bB]?", text):
        raise ValueError(f"write {other[1]}{other[2].upper()}iB")
    raise ValueError("units are B, KiB, MiB, GiB, TiB")


def format_size(size: int) -> str:
    """`size` bytes in the largest unit that says it exactly."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"
