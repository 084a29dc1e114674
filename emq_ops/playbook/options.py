"""The options of modules: what each takes, checked where it is written and again after templating."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emq_ops.playbook.errors import wrong
from emq_ops.policy.kinds import COUNT, LANE, POSITIVE, SPAN, SWITCH, FieldType, Refused, duration, named
from emq_ops.policy.words import nearest
from emq_ops.protocol.ids import job_id
from emq_ops.syntax.errors import Position, kind_of

REQUIRED = object()
"""The default of an option that must be given."""


@dataclass(frozen=True)
class Option:
    """One option of a module. `empty_is_error`: an empty value (after templating) is refused, since it would mean
    "nothing" where a mistake is likelier; absent (or null) it is as if not given."""

    name: str
    type: FieldType
    doc: str
    default: Any = None
    choices: tuple[str, ...] = ()
    empty_is_error: bool = False
    template: bool = True
    """Whether texts in it are templates; else they are expressions (``that`` of ``assert``)."""

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED

    @property
    def shown_default(self) -> Any:
        """The default as it would be written; None where there is none."""
        return None if self.required or self.default is None else self.type.show(self.default)

    def take(self, value: Any, pos: Position) -> Any:
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
            # A number as text: a template with text around it, or `-e`.
            taken = self.type.given(value) if self.type.numeric and isinstance(value, str) else self.type.take(value)
        except ValueError as fault:
            detail = f": {fault}" if str(fault) else ""
            wrong(pos, f"option '{self.name}' expects {self.type.words}, got {kind_of(value)}{detail}")
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
        raise Refused
    return str(value)


def _true(value: Any) -> bool:
    if value is not True:
        raise Refused("leave it out otherwise" if value is False else "")
    return True


def _conditions(value: Any) -> list[str | bool]:
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(v, str | bool) for v in found):
        raise Refused
    return found


def _several(words: str, one: FieldType) -> FieldType:
    """The kind of one value or a list of values of `one`, each once."""

    def take(value: Any) -> list[Any]:
        return list(dict.fromkeys(one.take(v) for v in (value if isinstance(value, list) else [value])))

    return FieldType(words, take, _one_or_list(one.schema))


def _one_or_list(words: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [words, {"type": "array", "items": words, "minItems": 1}]}


TEXT = FieldType("a text", _text, {"type": ["string", "number"]})
TEXTS = _several("a text or a list of texts", TEXT)
TRUE = FieldType("true", _true, {"const": True})
BOOLEAN = SWITCH
DURATION = duration()
ANY = FieldType("any value", lambda value: value, {})
JOBS = _several("a job id or a list of job ids", named("a job id", job_id))
GROUP = LANE
CONDITIONS = FieldType(
    "an expression or a list of expressions", _conditions, _one_or_list({"type": ["string", "boolean"]})
)

__all__ = [
    "ANY", "BOOLEAN", "CONDITIONS", "COUNT", "DURATION", "GROUP", "JOBS", "POSITIVE", "REQUIRED", "SPAN", "TEXT",
    "TEXTS", "TRUE", "Option",
]  # fmt: skip
