"""The types that the YAML's fields have, each with what an error says was expected.

A typed field (number, duration, choice ...) may hold a reference: it is resolved from ``context["env"]`` to be checked
and used, and what is kept in plans and state is the text as written. A plain text field keeps its references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from emq_ops.config import secrets
from emq_ops.config.references import ReferenceFault, has_reference, references, resolve
from emq_ops.config.yamltree import OddNumber
from emq_ops.policy import scalars
from emq_ops.policy.schedule import EVERY_WORDS, Trigger, check_zone, parse_every
from emq_ops.policy.words import nearest
from emq_ops.protocol import ids, keyspace
from emq_ops.protocol.errors import BadInputError, EmqError

REFERENCE_SCHEMA = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"}


def fault(expected: str, hint: str = "", *, secret: bool = False) -> PydanticCustomError:
    """A validation fault: what was expected, and what to write instead. `secret`: the value must not be shown."""
    return PydanticCustomError("emq", "{expected}", {"expected": expected, "hint": hint, "secret": secret})


def env_of(info: ValidationInfo) -> Mapping[str, str]:
    """The environment that references are looked up in during validation."""
    context = info.context
    found = context.get("env") if isinstance(context, dict) else None
    return found if isinstance(found, Mapping) else {}


def _defers(info: ValidationInfo) -> bool:
    context = info.context
    return isinstance(context, dict) and bool(context.get("defer"))


class Typed:
    """A field's type, as an annotation. `take` answers the value or raises ValueError with a hint; what a reference
    resolves to goes to `take_text` (or `take`), and is never shown; `show` is how the value is written in YAML. With
    ``context["defer"]`` a reference to a variable that is not set stays as it is written, for who does not use it."""

    def __init__(
        self,
        expected: str,
        take: Callable[[Any], Any],
        schema: dict[str, Any],
        *,
        take_text: Callable[[str], Any] | None = None,
        show: Callable[[Any], Any] | None = None,
    ) -> None:
        self._expected = expected
        self._take = take
        self._take_text = take_text or take
        self._schema = {"anyOf": [*schema.get("anyOf", [schema]), REFERENCE_SCHEMA]}
        self._show = show

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        if not has_reference(value):
            try:
                return self._take(value)
            except ValueError as problem:
                raise fault(self._expected, str(problem)) from None
        try:
            resolved = resolve(value, env_of(info))
        except ReferenceFault as problem:
            if problem.name is None:
                raise fault(self._expected, str(problem)) from None
            if _defers(info):
                return value
            raise fault(f"a value in {problem.name}", f"{problem}; or write ${{{problem.name}:-default}}") from None
        try:
            return self._take_text(resolved)
        except ValueError:
            raise fault(f"{self._expected}, which is not what the reference gives") from None

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        serial = None if self._show is None else core_schema.plain_serializer_function_ser_schema(self._show)
        return core_schema.with_info_plain_validator_function(self._validate, serialization=serial)

    def __get_pydantic_json_schema__(self, _core: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self._schema


MAX_COUNT = 1_000_000_000_000
_DIGITS = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")


def whole(low: int = 0, high: int = MAX_COUNT) -> Typed:
    """The type of a whole number from `low` to `high`."""
    span = f"{low} or more" if high >= MAX_COUNT else f"from {low} to {high}"

    def take(value: Any) -> int:
        if isinstance(value, OddNumber):
            raise ValueError(_odd(value.text))
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            raise ValueError(f"write {value} without quotes")
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    def take_text(value: str) -> int:
        if not _DIGITS.fullmatch(value):
            raise ValueError
        return take(int(value))

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Typed(f"a whole number, {span}", take, schema, take_text=take_text)


def _odd(text: str) -> str:
    """What to write instead of a number that readers of YAML differ about."""
    bare = text.replace("_", "").lower()
    try:
        if re.fullmatch(r"[+-]?0[0-9]+", bare):
            return f"write {int(bare)}, without the leading zero"
        if re.fullmatch(r"[+-]?[0-9]+", bare):
            return f"write {int(bare)}" if abs(int(bare)) <= MAX_COUNT else f"at most {MAX_COUNT}"
        number = int(bare, 0) if re.fullmatch(r"[+-]?0[xob][0-9a-f]+", bare) else float(bare)
        if number == int(number):
            return f"write {int(number)}"
    except (ValueError, OverflowError):
        pass
    return "write it in plain digits"


def _share(value: Any) -> float:
    if isinstance(value, str) and (match := re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?)%", value)):
        number = float(match[1]) / 100
        if 0 < number <= 1:
            return number
    raise ValueError(
        f"write {value * 100:g}%" if isinstance(value, float) and 0 < value <= 1 else "above 0% up to 100%"
    )


def _duration(low: int) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        if isinstance(value, OddNumber):
            raise ValueError(f"{value.text} has no unit")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        nothing = bool(low) and not value and type(value) is int
        ms = 0 if nothing else scalars.parse_duration(str(value))
        if ms < low:
            raise ValueError(f"at least {scalars.format_duration(low)}")
        return ms

    return take


def duration(low: int = 0) -> Typed:
    """The type of a duration of at least `low` ms; the value is in ms."""
    schema = {"type": "string", "pattern": scalars.DURATION_PATTERN}
    return Typed(scalars.DURATION_WORDS, _duration(low), schema, show=scalars.format_duration)


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError
    size = scalars.parse_size(str(value))
    if size < 1:
        raise ValueError("at least 1B")
    return size


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word in ("yes", "on", "y", "1", "true"):
        raise ValueError("write true")
    if word in ("no", "off", "n", "0", "false"):
        raise ValueError("write false")
    raise ValueError


def _switch_text(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError
    return value == "true"


def choice(*words: str) -> Typed:
    """The type of one of `words`."""

    def take(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        close = nearest(value, words) if isinstance(value, str) else None
        raise ValueError(f"did you mean '{close}'?" if close else "")

    return Typed(" or ".join(words), take, {"enum": list(words)})


def _every(value: Any) -> Trigger:
    if isinstance(value, dict):
        unknown = set(value) - {"cron", "zone"}
        if unknown or not isinstance(value.get("cron"), str) or not isinstance(value.get("zone", ""), str):
            raise ValueError("write {cron: '0 3 * * *', zone: Europe/Berlin}")
        return parse_every(value["cron"], value.get("zone"))
    if not value and type(value) is int:
        return parse_every("0s")
    if isinstance(value, int | float) and not isinstance(value, bool):
        scalars.parse_duration(str(value))
    if isinstance(value, OddNumber):
        raise ValueError(f"{value.text} has no unit")
    if not isinstance(value, str):
        raise ValueError
    return parse_every(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        try:
            references(value)
        except ReferenceFault as problem:
            raise fault("text", str(problem)) from None
        if secrets.known_secret(value):
            raise fault("no secret written out", "write ${NAME} and set NAME in the environment", secret=True)
        return value
    if isinstance(value, int | float | bool | OddNumber):
        raise fault("text", "put it in quotes")
    raise fault("text")


def _url(value: Any) -> str:
    text = _text(value)
    if secrets.url_password(text):
        raise fault(
            "a URL without its secret",
            "write ${NAME} in its place, or take password:, and set NAME in the environment",
            secret=True,
        )
    return text


def _secret(value: Any) -> str:
    if isinstance(value, str):
        try:
            if not secrets.field_is_written_out(value):
                return value
        except ReferenceFault as problem:
            raise fault("a reference such as ${NAME}", str(problem), secret=True) from None
    raise fault(
        "a reference such as ${NAME}, never the secret itself",
        "set NAME in the environment, without a default",
        secret=True,
    )


def _checked(expected: str, check: Callable[[str], object]) -> AfterValidator:
    def validate(value: str) -> str:
        try:
            check(value)
        except (BadInputError, EmqError) as problem:
            raise fault(expected, f"{problem.what}; {problem.fix}" if problem.fix else problem.what) from None
        return value

    return AfterValidator(validate)


def _tuple(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    raise fault("a list")


def _texts(value: Any) -> Any:
    return (value,) if isinstance(value, str) else _tuple(value)


Listed = BeforeValidator(_tuple)
TextValidator = BeforeValidator(_text)
Text = Annotated[str, TextValidator, WithJsonSchema({"type": "string"})]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_texts)]
"""A list of texts; a single one may stand without the brackets."""
Url = Annotated[str, BeforeValidator(_url), WithJsonSchema({"type": "string"})]
Secret = Annotated[str, BeforeValidator(_secret), WithJsonSchema(REFERENCE_SCHEMA)]
Switch = Annotated[bool, Typed("true or false", _switch, {"type": "boolean"}, take_text=_switch_text)]
Count = Annotated[int, whole(0)]
Positive = Annotated[int, whole(1)]
Span = Annotated[int, duration(1)]
"""A duration above 0, in ms."""
Size = Annotated[
    int,
    Typed(scalars.SIZE_WORDS, _size, {"type": "string", "pattern": scalars.SIZE_PATTERN}, show=scalars.format_size),
]
Share = Annotated[
    float,
    Typed(
        "a share such as 50%",
        _share,
        {"type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]+)?%$"},
        show=lambda value: f"{value * 100:g}%",
    ),
]
Zone = Annotated[
    str, Typed("a time zone such as Europe/Berlin", lambda value: check_zone(str(value)), {"type": "string"})
]
_CRON_OBJECT = {
    "type": "object",
    "properties": {"cron": {"type": "string"}, "zone": {"type": "string"}},
    "required": ["cron"],
    "additionalProperties": False,
}
Every = Annotated[
    Any,
    Typed(
        EVERY_WORDS,
        _every,
        {"anyOf": [{"type": "string", "minLength": 2}, _CRON_OBJECT]},
        show=lambda trigger: trigger.text,
    ),
]
"""A Trigger."""
Lane = Annotated[str, TextValidator, _checked("a GRP id", ids.group_id)]
Stream = Annotated[str, TextValidator, _checked("the name of an event stream", keyspace.stream_name)]
