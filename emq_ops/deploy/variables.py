"""What references gave when a revision was applied, as digests: so that a changed variable shows, and no value does.

A digest is keyed by the state and made of the reference's text and what it resolved to. Secrets have none: one that is
rotated is no change of anything that is applied.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from emq_ops.deploy.document import Document
from emq_ops.passes.registry import PASSES
from emq_ops.policy.kinds import SECRET
from emq_ops.policy.options import Nested, keys
from emq_ops.policy.references import ReferenceFault, has_reference, references, resolve
from emq_ops.policy.scalars import format_duration, parse_duration

Env = Mapping[str, str]
Json = dict[str, Any]


class Past(str):
    """A reference whose variable has another value now than when it was applied. Equal to no text, since what it says
    now is not what it said then."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Past) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    @property
    def why(self) -> str:
        """``CC changed``."""
        return f"{' or '.join(dict.fromkeys(one.name for one in references(self)))} changed"


class Digests:
    """Makes and compares digests with the key of a state."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, text: str, resolved: str) -> str:
        """The digest of what the reference `text` gave."""
        said = f"{text}\0{canonical(resolved)}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()[:32]

    def now(self, text: str, env: Env) -> str | None:
        """The digest of what it gives now, None where a variable is not set."""
        try:
            return self.of(text, resolve(text, env))
        except ReferenceFault:
            return None

    def noted(self, document: Document, env: Env) -> Document:
        """`document` with the digests of all its references but secrets."""
        texts = sorted(set(_texts(document)))
        found = {text: digest for text in texts if (digest := self.now(text, env)) is not None}
        rest = {name: value for name, value in document.data.items() if name != "resolved"}
        return Document({**rest, "resolved": found} if found else rest)

    def as_applied(self, document: Document, env: Env) -> Document:
        """`document`, an applied one, with `Past` for every reference that gives something else in `env` now."""
        noted: Mapping[str, str] = document.data.get("resolved") or {}
        past = {text for text, then in noted.items() if (now := self.now(text, env)) is not None and now != then}
        if not past:
            return document
        known: dict[int, Any] = {}

        def told(value: Any) -> Any:
            if isinstance(value, str):
                return Past(value) if value in past else value
            if not isinstance(value, dict):
                return value
            if id(value) not in known:  # queues that say the same share their sections
                known[id(value)] = {name: told(below) for name, below in value.items()}
            return known[id(value)]

        entries: Json = {name: told(document.data[name]) for name in ("queues", "globs") if name in document.data}
        return Document({**document.data, **entries})

    def was(self, document: Document, text: str, live: Any) -> bool:
        """Whether the live value is what the reference `text` gave when `document` was applied."""
        noted: Mapping[str, str] = document.data.get("resolved") or {}
        said = str(live).lower() if isinstance(live, bool) else str(live)
        return live is not None and noted.get(str(text)) == self.of(text, said)


def canonical(text: str) -> str:
    """One form for what is the same number or duration in other words."""
    if text.isascii() and text.isdecimal():
        return str(int(text))
    try:
        return format_duration(parse_duration(text))
    except ValueError:
        return text


def _texts(document: Document) -> Iterator[str]:
    """Every text with a reference in the queues' sections, secrets left out."""
    seen: set[int] = set()

    def within(value: Any, secret: Callable[[str], bool]) -> Iterator[str]:
        if isinstance(value, dict):
            if id(value) in seen:
                return
            seen.add(id(value))
            for name, below in value.items():
                if not secret(name):
                    yield from within(below, secret)
        elif isinstance(value, list | tuple):
            for below in value:
                yield from within(below, secret)
        elif has_reference(value):
            yield value

    sections = [(one.section, frozenset(_secrets(one.policy)).__contains__) for one in PASSES]
    sections.append(("settings", frozenset[str]().__contains__))
    for entry in (*document.queues.values(), *(document.globs or {}).values()):
        for name, secret in sections:
            if (said := entry.get(name)) is not None and id(said) not in seen:
                yield from within(said, secret)


def _secrets(kind: type[Any]) -> Iterator[str]:
    """The keys of a type that hold secrets."""
    for name, key in keys(kind).items():
        if key.shape is SECRET:
            yield name
        elif isinstance(key.shape, Nested):
            yield from _secrets(key.shape.of)
