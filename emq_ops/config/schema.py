"""The JSON Schema of a config file."""

from __future__ import annotations

from typing import Any

from emq_ops.config.models import Config


def json_schema() -> dict[str, Any]:
    """The schema that editors check a file against. Keys that begin with ``x-`` are free, as a place for anchors."""
    schema = Config.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "emq-ops config"
    schema["patternProperties"] = {"^x-": {}}
    _nullable_entries(schema)
    return schema


def _nullable_entries(schema: dict[str, Any]) -> None:
    # `orders:` with nothing behind it is an entry that takes the defaults.
    queues = schema["properties"]["queues"]
    queues["additionalProperties"] = {"anyOf": [queues["additionalProperties"], {"type": "null"}]}
