"""What a commit or a checkpoint may say at all, whoever wrote it: looked at before anything is believed or stored."""

from __future__ import annotations

import json
import re
from typing import Any

from emq_ops.protocol.errors import BadInputError

MISREAD = (ValueError, LookupError, TypeError, RecursionError, AttributeError, BadInputError)
"""What reading an entry raises that no writer of ours wrote; `why_not` says it in words."""
_MOST = 2**63 - 1
_SURROGATE = re.compile("[\ud800-\udfff]")


def number(told: Any, name: str, *, least: int = 0, most: int = _MOST) -> int:
    """A whole number in bounds that both databases hold. Raises ValueError, KeyError."""
    value = told[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is no whole number from {least} to {most}")
    return value


def text(told: Any, name: str, *, perhaps: bool = False) -> Any:
    """A text that both databases hold; with `perhaps` also None. Raises ValueError, KeyError."""
    value = told[name]
    if isinstance(value, str) and ("\0" in value or (not value.isascii() and _SURROGATE.search(value))):
        raise ValueError(f"{name} has signs that no text has")
    if not (isinstance(value, str) or (perhaps and value is None)):
        raise ValueError(f"{name} is no text")
    return value


def why_not(fault: Exception) -> str:
    """Why what somebody put there is no entry of ours, in words."""
    if isinstance(fault, RecursionError):
        return "it is nested without end"
    if isinstance(fault, json.JSONDecodeError | UnicodeDecodeError):
        return "it is no JSON"
    if isinstance(fault, KeyError):
        return f"it lacks {fault.args[0]}"
    if isinstance(fault, BadInputError):
        return fault.what
    return str(fault) if type(fault) is ValueError else "what it says is of the wrong kind"


def check_segment(told: dict[str, Any]) -> None:
    """Raises one of MISREAD where a segment's entry says what no writer of ours says."""
    for name in ("bytes", "weight", "records"):
        number(told, name)
    for name in ("day", "time_min", "time_max"):
        number(told, name, least=-_MOST)
    number(told, "incarnation", most=2**31 - 1)
    for name in ("key", "sha256"):
        text(told, name)
    for name in ("job_min", "job_max", "evt"):
        text(told, name, perhaps=True)
    if any(part in ("", ".", "..") or "\0" in part for part in told["key"].split("/")):
        raise ValueError(f"'{told['key'][:80]}' is no key of the archive")
