"""A validator's complaints as config errors: where each value stands, what was expected, what comes closest."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from emq_ops.config.errors import ConfigError, Mark, shown
from emq_ops.config.models import Config
from emq_ops.config.yamltree import Mapping, Scalar, Tree
from emq_ops.config.yamltree import Sequence as Listing
from emq_ops.policy.words import nearest


def dotted(parts: Sequence[str | int]) -> str:
    """A path as errors show it: ``queues.orders.dead.keep``, ``maintenance[0].from``."""
    out = ""
    for part in parts:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            name = part if part.replace("-", "").replace("_", "").isalnum() else f'"{part}"'
            out += f".{name}" if out else name
    return out


def _strip(annotation: Any) -> Any:
    """The type inside ``Annotated`` and ``| None``."""
    while True:
        if get_origin(annotation) is typing.Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (typing.Union, types.UnionType):
            annotation = next(a for a in get_args(annotation) if a is not type(None))
        else:
            return annotation


def keys_at(parts: Sequence[str | int], root: type[BaseModel] = Config) -> list[str]:
    """The keys that may stand at a path; none where keys are free."""
    kind: Any = root
    for part in parts:
        kind = _strip(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = next((f for n, f in kind.model_fields.items() if (f.alias or n) == part), None)
            if field is None:
                return []
            kind = field.annotation
        elif get_args(kind):
            kind = get_args(kind)[-1] if get_origin(kind) is dict else get_args(kind)[0]
    kind = _strip(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [field.alias or name for name, field in kind.model_fields.items()]
    return []


def locate(tree: Tree, parts: Sequence[str | int], *, key: bool = False) -> tuple[Mark, Tree]:
    """The mark of what stands at a path (`key`: of its key) and the value; the nearest thing above it where there is
    nothing."""
    mark, here = tree.mark, tree
    for part in parts:
        if isinstance(here, Mapping) and isinstance(part, str) and part in here.items:
            key_mark, here = here.items[part]
            mark = key_mark if key or isinstance(here, Mapping | Listing) else here.mark
        elif isinstance(here, Listing) and isinstance(part, int) and part < len(here.items):
            here = here.items[part]
            mark = here.mark
        else:
            break
    return mark, here


def explain(
    problem: ValidationError, tree: Tree, root: type[BaseModel] = Config, prefix: tuple[str, ...] = ()
) -> ConfigError:
    """All faults of one validation, the first of the file in front."""
    found: list[ConfigError] = []
    for item in problem.errors(include_url=False, include_input=False):
        found.append(_one(item, tree, root, prefix))
    return combine(found)


def combine(faults: list[ConfigError]) -> ConfigError:
    """`faults` as one error: the first in file order, with the others behind it."""
    order = sorted(faults, key=lambda f: (f.mark.file, f.mark.line, f.mark.column) if f.mark else ("", 0, 0))
    first = order[0]
    first.others = tuple(order[1:])
    return first


def _one(item: Any, tree: Tree, root: type[BaseModel], prefix: tuple[str, ...]) -> ConfigError:
    loc = tuple(part for part in item["loc"] if part != "[key]")
    of_key = "[key]" in item["loc"]
    path = dotted([*prefix, *loc])
    context = item.get("ctx", {})
    if item["type"] == "extra_forbidden":
        mark, _ = locate(tree, loc, key=True)
        valid = keys_at(loc[:-1], root)
        close = nearest(str(loc[-1]), valid)
        return ConfigError(
            "unknown key",
            mark,
            path=path,
            expected=None,
            nearest=close,
            fix=None if close else f"keys here: {', '.join(valid)}",
        )
    if item["type"] == "missing":
        mark, _ = locate(tree, loc[:-1], key=True)
        return ConfigError("is missing", mark, path=path, fix="add it")
    mark, value = locate(tree, loc, key=of_key)
    got = shown(loc[-1]) if of_key else _got(value)
    if item["type"] == "emq":
        expected = context["expected"]
        return ConfigError(
            "the key" if of_key else "",
            mark,
            path=path,
            expected=expected,
            got=None if context["secret"] else got,
            fix=context["hint"] or None,
        )
    words = {"model_type": "a mapping", "dict_type": "a mapping", "model_attributes_type": "a mapping"}
    fix = "write {enabled: false}" if got == "false" and "enabled" in keys_at(loc, root) else None
    return ConfigError("", mark, path=path, expected=words.get(item["type"], item["msg"].lower()), got=got, fix=fix)


def _got(value: Tree) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Listing):
        return "a list"
    assert isinstance(value, Scalar)
    return shown(value.value)
