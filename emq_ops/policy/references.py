"""``${NAME}`` and ``${NAME:-default}``: found, checked, and resolved only when a value is used.

What is resolved is never read again: a value that itself holds ``${...}`` stays as it is. ``$5`` and ``$NAME`` are
plain text; ``$${`` stands for a literal ``${``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference: the variable's name, and the text after ``:-`` (None without)."""

    name: str
    default: str | None


class ReferenceFault(ValueError):
    """A malformed reference, or (`name` set) a variable that is not set and has no default."""

    def __init__(self, text: str, name: str | None = None) -> None:
        super().__init__(text)
        self.name = name


def _references(text: str) -> Iterator[tuple[re.Match[str], Reference | None]]:
    for token in _TOKEN.finditer(text):
        if token["body"] is None:
            yield token, None
            continue
        body = _BODY.fullmatch(token["body"])
        if not token["end"] or body is None:
            raise ReferenceFault("a reference is ${NAME} or ${NAME:-default}; write $${ for a literal ${")
        default = body["default"]
        if default is not None and "${" in default:
            raise ReferenceFault("a reference can't stand in the default of another; set the variable instead")
        yield token, Reference(body["name"], None if default is None else default[2:])


def references(text: str) -> list[Reference]:
    """The references in `text`, in order. Raises ReferenceFault for a malformed one."""
    return [reference for _, reference in _references(text) if reference is not None]


def has_reference(value: object) -> bool:
    """Whether `value` is text with a well-formed or malformed reference in it."""
    return isinstance(value, str) and any(token["body"] is not None for token in _TOKEN.finditer(value))


def resolve(text: str, env: Mapping[str, str]) -> str:
    """`text` with its references replaced, once. An unset or empty variable takes its default; an unset one
    without a default raises ReferenceFault with its name."""
    out: list[str] = []
    last = 0
    for token, reference in _references(text):
        out.append(text[last : token.start()])
        last = token.end()
        if reference is None:
            out.append("${")
            continue
        value = env.get(reference.name)
        if reference.default is not None and not value:
            value = reference.default
        if value is None:
            raise ReferenceFault(f"the environment variable {reference.name} is not set", reference.name)
        out.append(value)
    out.append(text[last:])
    return "".join(out)


def unset(text: str, env: Mapping[str, str]) -> list[str]:
    """The names in `text` that have neither a value nor a default."""
    return [r.name for r in references(text) if r.default is None and r.name not in env]
