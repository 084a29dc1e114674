"""What a filter of pyarrow, which is known by its text alone, asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator

_JOB_IS = re.compile(r'\(job == "([^"\\]*)"\)')


def job_asked_for(text: str) -> str | None:
    """The job that every match must have, by a filter's text: a term ``(job == "...")`` that stands alone or in a chain
    of ``and`` only. None where there is none."""
    for term in _terms(text):
        found = _JOB_IS.fullmatch(term)
        if found:
            return found[1]
    return None


def _terms(text: str) -> Iterator[str]:
    """The terms of the outermost chain of ``and``, in their parentheses."""
    if not (text.startswith("(") and text.endswith(")")):
        return
    depth, quoted, start, at = 0, False, 1, 0
    parts = []
    inner_end = len(text) - 1
    while at < len(text):
        c = text[at]
        if quoted:
            at += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if depth == 0 and at != inner_end:
                return  # two groups side by side: not one parenthesis around all
        elif depth == 1 and text.startswith(" and ", at):
            parts.append(text[start:at])
            start = at + 5
            at += 4
        elif depth == 1 and text.startswith(" or ", at):
            return
        at += 1
    if not parts:
        yield text
        return
    for part in [*parts, text[start:inner_end]]:
        yield from _terms(part)
