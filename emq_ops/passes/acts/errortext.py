"""Error texts of strangers: cut, cleaned, and normalised so that the same fault has one text.

Numbers, ids, addresses and the like become ``#`` words; a number that names the kind of fault (an HTTP status) stays.
"""

from __future__ import annotations

import functools
import hashlib
import re

from emq_ops.protocol.errors import one_line

READ = 4096
"""So much of a text is ever looked at, bytes."""
SHOWN = 200
"""So much of a normalised text is kept, characters."""

# One pass, the first that fits wins. A status is left as it is.
_WORDS = re.compile(
    r"(?<![0-9A-Za-z_])(?:"
    r"(?P<number>[0-9]{1,7}(?![0-9A-Fa-f_.:xX-]))"  # the usual case first
    r"|(?P<status>(?:HTTP(?:/[0-9.]+)?|[Ss]tatus(?: code)?|code|errno)[ :=]+[0-9]{3}\b)"
    r"|(?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b)"
    r"|(?P<id>[A-Z]{3}0[0-9A-Za-z]{10}\b)"
    r"|(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?(?:Z|[+-][0-9:]+)?)"
    r"|(?P<ip>[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b)"
    r"|(?P<pid>#(?:PID|Reference|Port)<[0-9.]+>)"
    r"|(?P<hex>0x[0-9a-fA-F]+\b|(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8,}\b)"
    r"|(?P<plain>[0-9]+(?:[._][0-9]+)*))"
    r"|(?P<tail>(?<=[A-Za-z_])[0-9]{3,})"
)
_SPACE = re.compile(r"\s+")


def text_of(raw: bytes, limit: int = READ, whole: int | None = None) -> str:
    """`raw` as one line that can't steer a terminal, at most `limit` bytes of it; a cut is visible. `whole`: how long
    the text was before `raw` was cut from it."""
    size = len(raw) if whole is None else whole
    text = one_line(_SPACE.sub(" ", raw[:limit].decode("utf-8", "backslashreplace")).strip())
    return text if size <= limit else f"{text}… ({size} bytes)"


def normalise(raw: bytes | None) -> str:
    """The text that errors of this kind share; empty for None. At most SHOWN characters, cut visibly."""
    if raw is None:
        return ""
    return _normal(raw[:READ])


@functools.lru_cache(maxsize=256)
def _normal(raw: bytes) -> str:
    text = _SPACE.sub(" ", raw.decode("utf-8", "backslashreplace")).strip()
    text = one_line(_WORDS.sub(_word, text))
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _word(match: re.Match[str]) -> str:
    kind = match.lastgroup
    return match[0] if kind == "status" else "#" if kind in ("number", "plain", "tail") else f"#{kind}"


@functools.lru_cache(maxsize=256)
def group_of(cause: str, error: str) -> str:
    """A short name for a group of deaths: eight hex digits of its cause and normalised text."""
    return hashlib.sha256(f"{cause}\0{error}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
