"""Secrets that this process has resolved: whatever is shown, logged or stored goes through `masked`.

A value is known with the forms in which libraries and servers write it (percent-encoded, escaped, base64, hexadecimal),
in either case, whole or cut at its end.
"""

from __future__ import annotations

import base64
import html
import json
import re
import threading
from urllib.parse import quote, quote_plus

LEAST = 4
"""Shorter values are no secrets, and would be found everywhere."""
_STEM = 8
"""A form that is cut is known by so many characters."""
_MOST = 4_096
"""Values that are remembered; a process has a handful."""

_lock = threading.Lock()
_known: dict[str, str] = {}
_forms: dict[str, list[tuple[str, str]]] = {}
"""By their first characters: the forms of every value, folded, with what stands in their place."""
_stems: list[re.Pattern[str] | None] = [None]


def remember(value: str, name: str | None = None) -> None:
    """Masks `value` from now on: as ``${name}``, or ``***``."""
    if len(value) < LEAST or value in _known:
        return
    shown = f"${{{name}}}" if name else "***"
    with _lock:
        if len(_known) >= _MOST:
            return
        for form in _forms_of(value):
            folded = form.lower()
            stem = folded[:_STEM]
            _forms.setdefault(stem, []).append((folded, shown))
        _known[value] = shown
        _stems[0] = re.compile("|".join(map(re.escape, sorted(_forms, key=len, reverse=True))))


def forget() -> None:
    """Forgets every value; for tests, whose secrets are words of other tests."""
    with _lock:
        _known.clear()
        _forms.clear()
        _stems[0] = None


def masked(text: str) -> str:
    """`text` without any remembered value."""
    stems = _stems[0]
    if stems is None:
        return text
    folded = text.lower()
    if len(folded) != len(text):  # a letter whose lower case is longer: positions would not fit
        folded = "".join(low if len(low := sign.lower()) == 1 else sign for sign in text)
    out: list[str] = []
    done = at = 0
    while (match := stems.search(folded, at)) is not None:
        # None of them whole: as much of one as there is.
        length, shown = max((_common(form, folded, match.start()), shown) for form, shown in _forms[match[0]])
        out += [text[done : match.start()], shown]
        at = done = match.start() + length
    return "".join([*out, text[done:]]) if out else text


def _common(form: str, folded: str, at: int) -> int:
    count = 0
    while count < len(form) and at + count < len(folded) and form[count] == folded[at + count]:
        count += 1
    return count


def _forms_of(value: str) -> set[str]:
    raw = value.encode("utf-8", "surrogatepass")
    found = {
        *(value, quote(raw, safe=""), quote(raw), quote_plus(raw), html.escape(value), repr(value)[1:-1]),
        *(json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], raw.hex()),
        value.encode("unicode_escape").decode("ascii"),
    }
    for before in range(3):  # wherever it stands in what was encoded
        text = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        inner = text[-(-before * 8 // 6) : len(text) - (1 if (before + len(raw)) % 3 else 0)]
        found |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) >= LEAST}
