"""Frozen types whose fields say everything once: kind, default, bounds, help text, and the key in YAML.

A field is declared by `option` (one key) or `flat` (another such type, whose keys stand beside the others). What reads
YAML, writes it, makes the JSON Schema or checks a value goes by `keys`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from emq_ops.policy.kinds import FieldType
from emq_ops.protocol.errors import BadInputError

T = TypeVar("T")
_UNITS = ("_ms", "_bytes")


@dataclass(frozen=True, slots=True)
class Nested:
    """A mapping that is read as `of`. `beside`: another type whose keys may stand in it; `loose`: the values are kept
    as they are, by key, since only together with others they make a whole."""

    of: type[Any]
    beside: type[Any] | None = None
    loose: bool = False
    words: str = "a mapping"


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of `item`. `single`: one may stand without the brackets."""

    item: FieldType | Nested
    single: bool = False
    words: str = "a list"


@dataclass(frozen=True, slots=True)
class Named:
    """A mapping of names of kind `name` to `item`."""

    name: FieldType
    item: Nested
    words: str = "a mapping"


Shape = FieldType | Nested | Listed | Named


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a mapping in YAML. `path`: the attributes that lead to the value; `default`: the value where nothing
    is written (MISSING: it must be); `optional`: nothing at all may be said (``null``)."""

    name: str
    path: tuple[str, ...]
    shape: Shape
    help: str
    default: Any
    optional: bool = False

    def of(self, instance: Any) -> Any:
        """The value in `instance`."""
        for attribute in self.path:
            instance = instance.get(attribute) if isinstance(instance, dict) else getattr(instance, attribute)
        return instance


def option(shape: Shape, default: Any = MISSING, help: str = "", *, key: str | None = None) -> Any:
    """A field that one key of the YAML sets: its name without the unit, or `key`."""
    metadata = {"shape": shape, "help": help, "key": key}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def flat(default: Any, **helps: str) -> Any:
    """A field of another such type, whose keys stand beside the others. `helps`: key -> its help text here."""
    return field(default=default, metadata={"flat": True, "helps": helps})


def more(found: Callable[[], Mapping[str, Shape]]) -> Any:
    """A field that holds the values of keys which others declare: name -> shape. None of them needs to be there."""
    return field(default_factory=dict, metadata={"more": found})


_known: dict[type[Any], dict[str, Key]] = {}


def keys(kind: type[Any]) -> dict[str, Key]:
    """The keys of a type, in order. Not to be changed."""
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _keys(kind)
    return found


def _keys(kind: type[Any]) -> dict[str, Key]:
    found: dict[str, Key] = {}
    for one in fields(kind):
        if one.metadata.get("flat"):
            for name, key in keys(type(one.default)).items():
                text = one.metadata["helps"].get(name, key.help)
                found[name] = replace(key, path=(one.name, *key.path), help=text, default=key.of(one.default))
        elif "more" in one.metadata:
            for name, shape in one.metadata["more"]().items():
                found[name] = Key(name, (one.name, name), shape, "", None, True)
        elif "shape" in one.metadata:
            default = {} if one.default_factory is not MISSING else one.default
            name = one.metadata["key"] or _bare(one.name)
            optional = str(one.type).endswith("None")
            found[name] = Key(name, (one.name,), one.metadata["shape"], one.metadata["help"], default, optional)
    return found


def _bare(name: str) -> str:
    for unit in _UNITS:
        name = name.removesuffix(unit)
    return name


def build(kind: type[T], values: Mapping[str, Any], **more: Any) -> T:
    """The instance that has `values` (by key); whatever they do not say is at its default. `more`: attributes that no
    key sets. Raises BadInputError where the values make no sense together."""
    attributes: dict[str, Any] = dict(more)
    for one in fields(kind):  # type: ignore[arg-type]  # a dataclass
        if one.metadata.get("flat"):
            inner = {name: values[name] for name in keys(type(one.default)) if name in values}
            attributes[one.name] = _changed(one.default, inner)
        elif "more" in one.metadata:
            attributes[one.name] = {name: values[name] for name in one.metadata["more"]() if name in values}
        elif "shape" in one.metadata:
            name = one.metadata["key"] or _bare(one.name)
            if name in values:
                attributes[one.name] = values[name]
    return kind(**attributes)


def _changed(instance: Any, values: Mapping[str, Any]) -> Any:
    return replace(instance, **{keys(type(instance))[name].path[0]: value for name, value in values.items()})


def show(shape: Shape, value: Any) -> Any:
    """`value` as YAML says it, in plain data."""
    if value is None:
        return None
    if isinstance(shape, FieldType):
        return value if shape.text or isinstance(value, str) else shape.show(value)
    if isinstance(shape, Nested):
        return value if shape.loose else written(value)
    if isinstance(shape, Listed):
        return [show(shape.item, one) for one in value]
    return {name: show(shape.item, one) for name, one in value.items()}


def written(instance: Any) -> dict[str, Any]:
    """Every key of `instance` with its value as YAML says it."""
    return {name: show(key.shape, key.of(instance)) for name, key in keys(type(instance)).items()}


def check(instance: Any) -> None:
    """Holds the fields of `instance` to the bounds of their kinds. Raises BadInputError."""
    for name, key in keys(type(instance)).items():
        value = key.of(instance)
        if value is not None and isinstance(key.shape, FieldType) and not key.shape.admits(value):
            choices = f"one of {', '.join(key.shape.choices)}"
            raise BadInputError(f"{name} is {value!r}", fix=choices if key.shape.choices else f"give {key.shape.words}")
