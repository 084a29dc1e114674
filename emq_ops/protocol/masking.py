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
_MOST = 1_024
"""Values that are remembered; a process has a handful. With more of them nothing is shown any more."""
_ROTATED = 64
"""Values of one name: a secret that is rotated leaves that many behind it."""
WITHHELD = f"(withheld: more than {_MOST} secrets were read, or made of some; restart this process)"

_lock = threading.Lock()
_known: dict[str, str] = {}
"""What stands in the place of each value; of those of one name the one that was read last is the last."""
_made: set[str] = set()
_forms: dict[str, list[tuple[str, str]]] = {}
"""By their first characters: the forms of every value, folded, with what stands in their place."""
_stems: list[re.Pattern[str] | None] = [None]
_full: list[bool] = [False]


def remember(value: str, name: str | None = None, *, made: bool = False) -> None:
    """Masks `value` from now on: as ``${name}``, or ``***``. Of a `name` whose value changes the last ones stay
    masked (of what was `made` of it, all); where there are too many all the same, `masked` withholds every text."""
    if len(value) < LEAST:
        return
    shown = f"${{{name}}}" if name else "***"
    with _lock:
        if value in _known:
            _known[value] = _known.pop(value)
            return
        if name is not None and not made:
            alike = [old for old, as_ in _known.items() if as_ == shown and old not in _made]
            if len(alike) >= _ROTATED:
                _drop(alike[0])
        if len(_known) >= _MOST:
            _full[0] = True
            return
        for form in _forms_of(value):
            folded = form.lower()
            stem = folded[:_STEM]
            _forms.setdefault(stem, []).append((folded, shown))
        _known[value] = shown
        if made:
            _made.add(value)
        _stems[0] = None


def _drop(value: str) -> None:
    shown = _known.pop(value)
    for form in _forms_of(value):
        folded = form.lower()
        kept = _forms[folded[:_STEM]]
        kept.remove((folded, shown))
        if not kept:
            del _forms[folded[:_STEM]]


def forget() -> None:
    """Forgets every value; for tests, whose secrets are words of other tests."""
    with _lock:
        _known.clear()
        _made.clear()
        _forms.clear()
        _stems[0] = None
        _full[0] = False


def knows_any() -> bool:
    """Whether there is any value that `masked` looks for."""
    return _full[0] or bool(_known)


def masked(text: str) -> str:
    """`text` without any remembered value; `WITHHELD` where some could not be remembered."""
    if _full[0]:
        return WITHHELD
    if not _known:
        return text
    with _lock:
        stems = _stems[0] = _stems[0] or re.compile("|".join(map(re.escape, sorted(_forms, key=len, reverse=True))))
    folded = text.lower()
    if len(folded) != len(text):  # a letter whose lower case is longer: positions would not fit
        folded = "".join(low if len(low := sign.lower()) == 1 else sign for sign in text)
    out: list[str] = []
    done = at = 0
    while (match := stems.search(folded, at)) is not None:
        # None of them whole: as much of one as there is.
        there = _forms.get(match[0]) or [(match[0], "***")]  # another thread dropped it meanwhile
        length, shown = max((_common(form, folded, match.start()), shown) for form, shown in there)
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
