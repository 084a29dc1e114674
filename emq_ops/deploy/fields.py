"""How two versions of a resource differ, field by field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emq_ops.deploy import loss
from emq_ops.deploy.model import Field, Op
from emq_ops.deploy.variables import Past

Env = Mapping[str, str]
Json = dict[str, Any]


def changed(before: Json | None, after: Json | None, env: Env) -> list[Field]:
    """The fields that differ, in the order of the later one. A reference that gives something else now is told with
    what it gives."""
    old, new = before or {}, after or {}
    names = [*new, *(name for name in old if name not in new)]
    out = []
    for name in names:
        was, will = old.get(name), new.get(name)
        if isinstance(was, Past):
            out.append(Field(name, str(was), loss.told(will, env)))
        elif was != will:
            out.append(Field(name, was, will))
    return out


def op_of(before: Any, after: Any) -> Op:
    """What a step does to a resource that was `before` and will be `after`."""
    return "create" if before is None else "delete" if after is None else "update"


def plain_of(value: Any) -> Any:
    """A setting with its references as text."""
    if isinstance(value, dict):
        return {name: plain_of(below) for name, below in value.items()}
    return str(value) if isinstance(value, Past) else value


def past_of(value: Any) -> list[Past]:
    """The references in a setting that give something else than when it was applied."""
    parts = value.values() if isinstance(value, dict) else [value]
    return [part for part in parts if isinstance(part, Past)]
