"""The JSON Schema of a config file, made from the types that it is read by."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from emq_ops.config.models import Config
from emq_ops.policy.kinds import REFERENCE_SCHEMA, FieldType
from emq_ops.policy.options import Key, Listed, Nested, Shape, show
from emq_ops.policy.reading import keys_with


def json_schema() -> dict[str, Any]:
    """The schema that editors check a file against. Keys that begin with ``x-`` are free, as a place for anchors."""
    definitions: dict[str, Any] = {}
    _shape(Nested(Config), definitions)
    whole = definitions.pop("Config")
    whole["patternProperties"] = {"^x-": {}}
    # `orders:` with nothing behind it is an entry that takes the defaults.
    queues = whole["properties"]["queues"]
    queues["additionalProperties"] = {"anyOf": [queues["additionalProperties"], {"type": "null"}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "emq-ops config",
        **whole,
        "$defs": definitions,
    }


def _shape(shape: Shape, definitions: dict[str, Any]) -> dict[str, Any]:
    if isinstance(shape, FieldType):
        if shape.text:
            return dict(shape.schema)
        return {"anyOf": [*shape.schema.get("anyOf", [shape.schema]), REFERENCE_SCHEMA]}
    if isinstance(shape, Listed):
        items = {"type": "array", "items": _shape(shape.item, definitions)}
        return {"anyOf": [items, _shape(shape.item, definitions)]} if shape.single else items
    if not isinstance(shape, Nested):
        return {"type": "object", "additionalProperties": _shape(shape.item, definitions)}
    name = shape.of.__name__
    if name not in definitions:
        definitions[name] = {}  # a type that holds itself would come back here
        found = keys_with(shape.of, shape.beside)
        definitions[name] = {
            "type": "object",
            "additionalProperties": False,
            "description": (shape.of.__doc__ or "").strip().split("\n\n")[0],
            "properties": {key: _key(value, definitions) for key, value in found.items()},
        }
        required = [key for key, value in found.items() if value.default is MISSING]
        if required:
            definitions[name]["required"] = required
    return {"$ref": f"#/$defs/{name}"}


def _key(key: Key, definitions: dict[str, Any]) -> dict[str, Any]:
    found = _shape(key.shape, definitions)
    if key.optional:
        found = {"anyOf": [*(found["anyOf"] if list(found) == ["anyOf"] else [found]), {"type": "null"}]}
    if key.help:
        found["description"] = key.help
    if key.default is not MISSING and not isinstance(key.shape, Nested):
        found["default"] = show(key.shape, key.default)
    return found
