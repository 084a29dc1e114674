"""The types that fields have, for config files, playbooks and policies alike.

Each says what it takes, what an error says was expected, and how a value is written. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emq_ops.policy import scalars, secrets
from emq_ops.policy.references import ReferenceFault, references
from emq_ops.policy.triggers import EVERY_WORDS, Trigger, check_zone, parse_every
from emq_ops.policy.words import nearest
from emq_ops.protocol import ids, keyspace
from emq_ops.protocol.errors import EmqError

REFERENCE_SCHEMA = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"}
MAX_COUNT = 1_000_000_000_000
_DIGITS = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")


class Refused(ValueError):
    """A value that a kind does not take. The text is a hint, or empty. `expected`: instead of the kind's own words;
    `secret`: the value must not be shown."""

    def __init__(self, hint: str = "", *, expected: str | None = None, secret: bool = False) -> None:
        super().__init__(hint)
        self.expected, self.secret = expected, secret


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of one field. `words`: what is expected; `take`: from plain YAML data to the value, raises ValueError
    whose text is a hint; `take_text`: the same for text that a reference or template gave (None: `take`); `show`: the
    value as YAML says it; `text`: the value is text that keeps its references until it is used; `low`, `high`,
    `choices`: what the value itself is held to."""

    words: str
    take: Callable[[Any], Any]
    schema: dict[str, Any]
    take_text: Callable[[str], Any] | None = None
    show: Callable[[Any], Any] = _same
    text: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def numeric(self) -> bool:
        """Whether the value is a number, however it is written."""
        return self.low is not None

    def given(self, text: str) -> Any:
        """The value of `text` that a reference or template gave. Raises ValueError."""
        return (self.take_text or self.take)(text)

    def admits(self, value: Any) -> bool:
        """Whether `value`, of the field's own type, is within the kind's bounds."""
        if self.choices:
            return value in self.choices
        if self.low is None or self.high is None:
            return True
        return not isinstance(value, bool) and isinstance(value, int | float) and self.low <= value <= self.high


def whole(low: int = 0, high: int = MAX_COUNT) -> FieldType:
    """The kind of a whole number from `low` to `high`."""
    span = f"{low} or more" if high >= MAX_COUNT else f"from {low} to {high}"

    def take(value: Any) -> int:
        if isinstance(value, str):
            bare = value.replace("_", "")
            raise Refused(f"write {bare} without quotes" if _DIGITS.fullmatch(value) else _plain_digits(value))
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            raise Refused(f"write {int(value)}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refused
        if not low <= value <= high:
            raise Refused(f"at most {high}" if value > high >= MAX_COUNT else "")
        return value

    def take_text(value: str) -> int:
        if not _DIGITS.fullmatch(value):
            raise Refused
        return take(int(value))

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return FieldType(f"a whole number, {span}", take, schema, take_text=take_text, low=low, high=high)


def _plain_digits(text: str) -> str:
    """What to write for a number that only other readers of YAML take for one."""
    if re.fullmatch(r"[+-]?[0-9]+(_[0-9]+)+", text):
        return f"write {int(text.replace('_', ''))}"
    return f"write {int(text, 2)}" if re.fullmatch(r"[+-]?0b[01]+", text) else ""


def duration(low: int = 0) -> FieldType:
    """The kind of a duration of at least `low` ms; the value is in ms."""

    def take(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise Refused
        nothing = bool(low) and not value and type(value) is int
        ms = 0 if nothing else scalars.parse_duration(str(value))
        if ms < low:
            raise Refused(f"at least {scalars.format_duration(low)}")
        return ms

    schema = {"type": "string", "pattern": scalars.DURATION_PATTERN}
    high = scalars.MAX_DURATION_MS
    return FieldType(scalars.DURATION_WORDS, take, schema, show=scalars.format_duration, low=low, high=high)


def size(low: int = 1) -> FieldType:
    """The kind of a size of at least `low` bytes."""

    def take(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise Refused
        found = scalars.parse_size(str(value))
        if found < low:
            raise Refused(f"at least {scalars.format_size(low)}")
        return found

    schema = {"type": "string", "pattern": scalars.SIZE_PATTERN}
    return FieldType(scalars.SIZE_WORDS, take, schema, show=scalars.format_size, low=low, high=scalars.MAX_SIZE)


def choice(*words: str) -> FieldType:
    """The kind of one of `words`."""

    def take(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        close = nearest(value, words) if isinstance(value, str) else None
        raise Refused(f"did you mean '{close}'?" if close else "")

    return FieldType(" or ".join(words), take, {"enum": list(words)}, choices=words)


def _share(value: Any) -> float:
    if isinstance(value, str) and (match := re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?)%", value)):
        number = float(match[1]) / 100
        if 0 < number <= 1:
            return number
    raise Refused(f"write {value * 100:g}%" if isinstance(value, float) and 0 < value <= 1 else "above 0% up to 100%")


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word in ("yes", "on", "y", "1", "true"):
        raise Refused("write true")
    raise Refused("write false" if word in ("no", "off", "n", "0", "false") else "")


def _switch_text(value: str) -> bool:
    if value not in ("true", "false"):
        raise Refused
    return value == "true"


def _every(value: Any) -> Trigger:
    if isinstance(value, dict):
        unknown = set(value) - {"cron", "zone"}
        if unknown or not isinstance(value.get("cron"), str) or not isinstance(value.get("zone", ""), str):
            raise Refused("write {cron: '0 3 * * *', zone: Europe/Berlin}")
        return parse_every(value["cron"], value.get("zone"))
    if not value and type(value) is int:
        return parse_every("0s")
    if isinstance(value, int | float) and not isinstance(value, bool):
        scalars.parse_duration(str(value))
    if not isinstance(value, str):
        raise Refused
    return parse_every(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        try:
            references(value)
        except ReferenceFault as problem:
            raise Refused(str(problem), expected="text") from None
        if secrets.known_secret(value):
            hint = "write ${NAME} and set NAME in the environment"
            raise Refused(hint, expected="no secret written out", secret=True)
        return value
    raise Refused("put it in quotes" if isinstance(value, int | float | bool) else "", expected="text")


def _url(value: Any) -> str:
    text = _text(value)
    if secrets.url_password(text):
        hint = "write ${NAME} in its place, or take password:, and set NAME in the environment"
        raise Refused(hint, expected="a URL without its secret", secret=True)
    return text


def _secret(value: Any) -> str:
    if isinstance(value, str):
        try:
            if not secrets.field_is_written_out(value):
                return value
        except ReferenceFault as problem:
            raise Refused(str(problem), expected="a reference such as ${NAME}", secret=True) from None
    raise Refused("set NAME in the environment, without a default", secret=True)


def named(words: str, check: Callable[[str], object]) -> FieldType:
    """The kind of text that `check` lets pass."""

    def take(value: Any) -> str:
        text = _text(value)
        try:
            check(text)
        except EmqError as problem:
            raise Refused(f"{problem.what}; {problem.fix}" if problem.fix else problem.what) from None
        return text

    return FieldType(words, take, {"type": "string"}, text=True)


_CRON_OBJECT = {
    "type": "object",
    "properties": {"cron": {"type": "string"}, "zone": {"type": "string"}},
    "required": ["cron"],
    "additionalProperties": False,
}

COUNT = whole(0)
POSITIVE = whole(1)
SPAN = duration(1)
"""A duration above 0, in ms."""
SIZE = size()
SWITCH = FieldType("true or false", _switch, {"type": "boolean"}, take_text=_switch_text)
SHARE = FieldType(
    "a share such as 50%",
    _share,
    {"type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]+)?%$"},
    show=lambda value: f"{value * 100:g}%",
    low=1e-9,
    high=1,
)
EVERY = FieldType(
    EVERY_WORDS,
    _every,
    {"anyOf": [{"type": "string", "minLength": 2}, _CRON_OBJECT]},
    show=lambda trigger: trigger.text,
)
"""The value is a Trigger."""
ZONE = FieldType("a time zone such as Europe/Berlin", lambda value: check_zone(str(value)), {"type": "string"})
TEXT = FieldType("text", _text, {"type": "string"}, text=True)
URL = FieldType("text", _url, {"type": "string"}, text=True)
SECRET = FieldType("a reference such as ${NAME}, never the secret itself", _secret, REFERENCE_SCHEMA, text=True)
LANE = named("a GRP id", ids.group_id)
STREAM = named("the name of an event stream", keyspace.stream_name)
