"""Single values of the recordings: bytes, instants, and what a server may be off by."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from emq_ops.protocol.errors import BadInputError

TOLERANCE_MS = 2000
_OFFSET = re.compile(r"@([+-]\d{1,15})")


def raw(value: Any) -> bytes:
    """A recorded value as the bytes it stands for."""
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error:
            raise BadInputError("a base64 value can't be decoded") from None
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value).encode("ascii")
    raise BadInputError(f"a value is {value!r}", fix="text, a number or {'base64': ...}")


def offset(value: Any) -> int | None:
    """N of ``"@+N"``, or None for anything else."""
    match = _OFFSET.fullmatch(value) if isinstance(value, str) else None
    return int(match[1]) if match else None


def instant(value: Any, now_ms: int) -> Any:
    """`value` with ``"@+N"`` replaced by `now_ms` + N."""
    shift = offset(value)
    return value if shift is None else now_ms + shift


def show(value: Any) -> str:
    """A value for a line of a diff."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
