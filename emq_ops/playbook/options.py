"""The options of modules: what each takes, checked where it is written and again after templating."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emq_ops.playbook.errors import wrong
from emq_ops.policy.scalars import DURATION_WORDS, format_duration, parse_duration
from emq_ops.policy.words import nearest
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.ids import group_id, job_id
from emq_ops.syntax.errors import Mark, kind_of

REQUIRED = object()
"""The default of an option that must be given."""


class Mismatch(ValueError):
    """A value that a type does not take; the text says what is wrong with it, or is empty."""


@dataclass(frozen=True)
class Type:
    """A type of option. `words`: what it expects, for errors and documentation; `take`: from plain data to the value
    that modules get, raising Mismatch; `schema`: JSON Schema of what may be written literally."""

    name: str
    words: str
    take: Callable[[Any], Any]
    schema: dict[str, Any]
    template: bool = True
    """Whether texts in it are templates (conditions are expressions instead)."""
    show: Callable[[Any], Any] = lambda value: value
    """A taken value as it would be written."""


@dataclass(frozen=True)
class Option:
    """One option of a module. `empty_is_error`: an empty value (after templating) is refused, since it would mean
    "nothing" where a mistake is likelier; absent (or null) it is as if not given."""

    name: str
    type: Type
    doc: str
    default: Any = None
    choices: tuple[str, ...] = ()
    empty_is_error: bool = False

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED

    @property
    def shown_default(self) -> Any:
        """The default as it would be written; None where there is none."""
        return None if self.required or self.default is None else self.type.show(self.default)

    def take(self, value: Any, pos: Mark) -> Any:
        """`value`, plain data, as a module gets it. Raises PlaybookError at `pos`."""
        if value is None:
            if self.required:
                wrong(pos, f"option '{self.name}' is empty", f"give {self.type.words}")
            return self.default
        if self.empty_is_error and _empty(value):
            wrong(
                pos, f"option '{self.name}' is empty", "an empty filter never means 'all'; guard the task with 'when'"
            )
        try:
            taken = self.type.take(value)
        except Mismatch as fault:
            detail = f": {fault}" if str(fault) else ""
            wrong(pos, f"option '{self.name}' expects {self.type.words}, got {kind_of(value)}{detail}")
        except EmqError as fault:
            wrong(pos, f"option '{self.name}': {fault.what}", fault.fix)
        for word in taken if isinstance(taken, list) else [taken]:
            if self.choices and word not in self.choices:
                near = nearest(str(word), self.choices)
                hint = f"did you mean '{near}'?" if near else f"one of {', '.join(self.choices)}"
                wrong(pos, f"option '{self.name}' is {kind_of(word)}", hint)
        return taken


def _empty(value: Any) -> bool:
    """Nothing, blanks alone, or a list with one of these in it."""
    if isinstance(value, list):
        return not value or any(_empty(child) for child in value if isinstance(child, str))
    return not value.strip() if isinstance(value, str) else value == {}


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Mismatch
    return str(value)


def _listed(take: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def taken(value: Any) -> list[Any]:
        return [take(v) for v in (value if isinstance(value, list) else [value])]

    return taken


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Mismatch("write true or false" if isinstance(value, str) else "")


def _true(value: Any) -> bool:
    if value is not True:
        raise Mismatch("leave it out otherwise" if value is False else "")
    return True


def _number(least: int, most: int = 1 << 53) -> Callable[[Any], int]:
    def taken(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?(0|[1-9][0-9]*)", value):
            value = int(value)  # a template with text around it, or `-e`
        if isinstance(value, bool) or not isinstance(value, int):
            raise Mismatch
        if not least <= value <= most:
            raise Mismatch(f"from {least} to {most}")
        return value

    return taken


def _duration(value: Any) -> int:
    if not isinstance(value, str):
        raise Mismatch("a unit is needed" if not isinstance(value, bool) else "")
    try:
        return parse_duration(value)
    except ValueError as fault:
        raise Mismatch(str(fault)) from fault


def _span(value: Any) -> int:
    if (found := _duration(value)) < 1:
        raise Mismatch("more than nothing")
    return found


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Mismatch
    return value


def _conditions(value: Any) -> list[str | bool]:
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(v, str | bool) for v in found):
        raise Mismatch
    return found


def _id(check: Callable[[str], str]) -> Callable[[Any], str]:
    def taken(value: Any) -> str:
        if not isinstance(value, str):
            raise Mismatch
        return check(value)

    return taken


def _unique(take: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    return lambda value: list(dict.fromkeys(take(value)))


def _one_or_list(words: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [words, {"type": "array", "items": words, "minItems": 1}]}


_STRING: dict[str, Any] = {"type": "string"}

TEXT = Type("text", "a text", _text, {"type": ["string", "number"]})
TEXTS = Type(
    "texts", "a text or a list of texts", _unique(_listed(_text)), _one_or_list({"type": ["string", "number"]})
)
TRUE = Type("true", "true", _true, {"const": True})
BOOLEAN = Type("boolean", "true or false", _boolean, {"type": "boolean"})
COUNT = Type("count", "a whole number of 0 or more", _number(0), {"type": "integer", "minimum": 0})
POSITIVE = Type("positive", "a whole number of 1 or more", _number(1), {"type": "integer", "minimum": 1})
DURATION = Type("duration", DURATION_WORDS, _duration, _STRING, show=format_duration)
SPAN = Type("span", DURATION_WORDS, _span, _STRING, show=format_duration)
ANY = Type("any", "any value", lambda value: value, {})
MAPPING = Type("mapping", "a mapping", _mapping, {"type": "object"})
JOBS = Type("jobs", "a job id or a list of job ids", _unique(_listed(_id(job_id))), _one_or_list(_STRING))
GROUP = Type("group", "a lane's GRP id", _id(group_id), _STRING)
CONDITIONS = Type(
    "conditions",
    "an expression or a list of expressions",
    _conditions,
    _one_or_list({"type": ["string", "boolean"]}),
    template=False,
)
