"""``${NAME}`` and ``${NAME:-default}``: found, checked, and resolved only when a value is used.

What is resolved is never read again: a value that itself holds ``${...}`` stays as it is. ``$5`` and ``$NAME`` are
plain text; ``$${`` stands for a literal ``${``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from emq_ops.policy.environment import ENV_ALLOW, may_read, resolves, value_of

_TOKEN = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference: the variable's name, and the text after ``:-`` (None without)."""

    name: str
    default: str | None


class ReferenceFault(ValueError):
    """A malformed reference, or (`name` set) a variable that is not set and has no default, or may not be read.
    `fix`: what to do about it."""

    def __init__(self, text: str, name: str | None = None, fix: str | None = None) -> None:
        super().__init__(text)
        self.name = name
        self.fix = fix


class ForbiddenReference(ReferenceFault):
    """A variable that the config may not read."""

    def __init__(self, name: str) -> None:
        fix = f"if it may: --allow-env {name}, or add it to {ENV_ALLOW}"
        super().__init__(f"the environment variable {name} may not be read here", name, fix)


class UnsetReference(ReferenceFault):
    """A variable that is not set, and no default."""

    def __init__(self, name: str) -> None:
        fix = f"set it, or write ${{{name}:-default}}"
        super().__init__(f"the environment variable {name} is not set", name, fix)


class UnresolvedReference(ReferenceFault):
    """One that is not to be resolved here."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the environment variable {name} is not read here", name)


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
    """`text` with its references replaced, once. An unset or empty variable takes its default. Raises ReferenceFault
    with its name for one that is unset and has no default, and for one that may not be read."""
    out: list[str] = []
    last = 0
    for token, reference in _references(text):
        out.append(text[last : token.start()])
        last = token.end()
        if reference is None:
            out.append("${")
            continue
        if not may_read(env, reference.name):
            raise ForbiddenReference(reference.name)
        if not resolves(env):
            raise UnresolvedReference(reference.name)
        value = value_of(env, reference.name)
        if reference.default is not None and not value:
            value = reference.default
        if value is None:
            raise UnsetReference(reference.name)
        out.append(value)
    out.append(text[last:])
    return "".join(out)


def names_of(text: str) -> list[str]:
    """The name of the variable of which `text` is nothing but a reference; nothing for any other text."""
    found = references(text)
    return [found[0].name] if len(found) == 1 and text.startswith("${") and text.endswith("}") else []


def unset(text: str, env: Mapping[str, str]) -> list[str]:
    """The names in `text` that have neither a value nor a default."""
    return [r.name for r in references(text) if r.default is None and value_of(env, r.name) is None]


def forbidden(text: str, env: Mapping[str, str]) -> list[ForbiddenReference]:
    """The references in `text` that may not be read, a fault each."""
    return [ForbiddenReference(r.name) for r in references(text) if not may_read(env, r.name)]
