"""What plain scalars say by the core schema of YAML 1.2. Pure."""

from __future__ import annotations

import re

NULL = frozenset(("", "~", "null", "Null", "NULL"))
BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_MAX_DIGITS = 400


def number(text: str) -> int | float | None:
    """The number that YAML 1.2's core schema takes a plain scalar for, None where it is none."""
    if not text or len(text) > _MAX_DIGITS or text[0] not in "0123456789+-.":
        return None
    if _INT.fullmatch(text):
        return int(text, 8 if text[1:2] == "o" else 16) if text[1:2] in ("o", "x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".nan", "nan").replace(".I", "I").replace(".N", "N"))
    return None


def scalar(text: str) -> str | int | float | bool | None:
    """What a plain scalar says by the core schema; text where it says nothing else."""
    if text in NULL:
        return None
    found = BOOL[text] if text in BOOL else number(text)
    return text if found is None else found
