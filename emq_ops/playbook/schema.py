"""The JSON Schema of playbooks, made from the same tables that the parser reads."""

from __future__ import annotations

from typing import Any

from emq_ops.playbook.modules import MODULES
from emq_ops.playbook.options import Option
from emq_ops.playbook.registry import Module
from emq_ops.playbook.words import BLOCK_KEYS, INCLUDE_KEYS, LOOP_CONTROL_KEYS, PLAY_KEYS, TASK_KEYS

_TEXT: dict[str, Any] = {"type": "string"}
_NAMES: dict[str, Any] = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_CONDITION: dict[str, Any] = {"anyOf": [{"type": ["string", "boolean"]}, {"type": "array", "minItems": 1}]}
_VARS: dict[str, Any] = {"type": ["object", "null"], "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"}}
_TEMPLATE: dict[str, Any] = {"type": "string", "pattern": r"\{[{%]"}
_STEPS: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}}
_SERIAL: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^([1-9][0-9]?|100)%$"}]
}
_PLAIN: dict[str, dict[str, Any]] = {
    "name": {"type": ["string", "number"]},
    "queues": _NAMES,
    "vars": _VARS,
    "tags": _NAMES,
    "when": _CONDITION,
    "until": {"type": ["string", "boolean"]},
    "loop": {"anyOf": [{"type": "array"}, _TEMPLATE]},
    "register": _TEXT,
    "named": {"type": "boolean"},
    "retries": {"anyOf": [{"type": "integer", "minimum": 0}, _TEMPLATE]},
    "delay": _TEXT,
    "notify": _NAMES,
    "include": _TEXT,
    "tasks": _STEPS,
    "block": _STEPS,
    "rescue": _STEPS,
    "always": _STEPS,
    "serial": {"anyOf": [*_SERIAL["anyOf"], {"type": "array", "minItems": 1, "items": _SERIAL}]},
    "max_fail_percentage": {"type": "number", "minimum": 0, "maximum": 100},
    "handlers": {"type": ["array", "null"], "items": {"$ref": "#/$defs/task"}},
    "loop_control": {
        "type": "object",
        "additionalProperties": False,
        "properties": {key: {"type": "string", "description": text} for key, text in LOOP_CONTROL_KEYS.items()},
    },
}


def _described(keys: dict[str, str]) -> dict[str, Any]:
    return {key: {**_PLAIN[key], **({"description": text} if text else {})} for key, text in keys.items()}


def _option(option: Option) -> dict[str, Any]:
    written = {**option.type.schema, **({"enum": list(option.choices)} if option.choices else {})}
    words: dict[str, Any] = {"description": f"{option.doc} ({option.type.words})"}
    if option.shown_default is not None:
        words["default"] = option.shown_default
    return {"anyOf": [written, _TEMPLATE, {"type": "null"}], **words} if option.template else {**written, **words}


def module_schema(module: Module) -> dict[str, Any]:
    """What may stand after a module's name."""
    if module.free:
        return {**_VARS, "type": "object", "minProperties": 1, "description": module.summary}
    required = [option.name for option in module.options if option.required]
    whole: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {option.name: _option(option) for option in module.options},
    }
    if required:
        whole["required"] = required
    forms = [whole] if required or module.needs_one else [whole, {"type": "null"}]
    if module.primary is not None:
        forms.append(_option(next(option for option in module.options if option.name == module.primary)))
    return {"anyOf": forms, "description": module.summary}


def schema() -> dict[str, Any]:
    """The schema, as plain data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "emq-ops playbook",
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [{"$ref": "#/$defs/play"}, {"$ref": "#/$defs/include"}]},
        "$defs": {
            "play": {
                "type": "object",
                "additionalProperties": False,
                "required": ["queues", "tasks"],
                "properties": _described(PLAY_KEYS),
            },
            "step": {"anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in ("task", "block", "include")]},
            "task": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    **_described(TASK_KEYS),
                    **{name: module_schema(module) for name, module in MODULES.items()},
                },
                "oneOf": [{"required": [name]} for name in MODULES],
            },
            "block": {
                "type": "object",
                "additionalProperties": False,
                "required": ["block"],
                "properties": _described(BLOCK_KEYS),
            },
            "include": {
                "type": "object",
                "additionalProperties": False,
                "required": ["include"],
                "properties": _described(INCLUDE_KEYS),
            },
        },
    }
