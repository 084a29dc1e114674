"""One section of a queue as fields: checked, built-in values filled in, references as written.

Sections that say the same share one result, whichever queues they stand under.
"""

from __future__ import annotations

from collections.abc import Mapping as Env
from typing import Any

from pydantic import BaseModel, ValidationError

from emq_ops.config.errors import BUILT_IN
from emq_ops.config.explain import explain
from emq_ops.config.models import QueueSection, Redact
from emq_ops.config.references import has_reference
from emq_ops.config.yamltree import Mapping, Tree, plain

Fields = dict[str, Any]
"""Field -> value as the YAML would say it: numbers, switches, text (a duration is ``30s``), references as written.
Shared between queues: not to be changed."""

Alike = dict[tuple[str, str], Fields | None]


class Sections:
    """Builds the fields of one queue's sections. `alike` is what was built so far, for any queue."""

    def __init__(self, queue: str, env: Env[str, str], alike: Alike) -> None:
        self._queue, self._env, self._alike = queue, env, alike

    def checked(self, model: type[Any], path: str, tree: Tree, data: Any = None) -> Any:
        """The model of `tree`. Raises ConfigError."""
        try:
            return model.model_validate(plain(tree) if data is None else data, context={"env": self._env})
        except ValidationError as problem:
            prefix = ("queues", self._queue, *(path.split(".", 1) if path else ()))
            raise explain(problem, tree, model, prefix) from None

    def task(self, model: type[BaseModel], path: str, tree: Tree | None) -> Fields | None:
        """A pass's fields; None where there is no such section, or it is not enabled. Raises ConfigError."""
        if not isinstance(tree, Mapping):
            return None
        data = plain(tree)
        key = (model.__name__, repr(data))
        if key not in self._alike:
            checked = self.checked(model, path, tree, data)
            self._alike[key] = self._fields(checked, data) if getattr(checked, "enabled", True) else None
        return self._alike[key]

    @staticmethod
    def _fields(checked: BaseModel, data: Fields) -> Fields:
        values = checked.model_dump(exclude={"note", "enabled"})
        values.update({name: data[name] for name in values if has_reference(data.get(name))})
        redact = getattr(checked, "redact", None)
        if isinstance(redact, Redact):
            values["redact"] = {"drop": list(redact.drop), "hash": list(redact.hash), "salt": redact.salt}
        return values

    def settings(self, tree: Tree | None) -> Fields:
        """Only what is written: ``{paused, concurrency, rate, lanes: {...}, repeatables: {...}}``."""
        if not isinstance(tree, Mapping):
            return {}
        data = plain(tree)
        key = ("Settings", repr(data))
        if key not in self._alike:
            whole = Mapping(BUILT_IN, {"settings": (tree.mark, tree)}, 1)
            checked = self.checked(QueueSection, "", whole, {"settings": data}).settings
            self._alike[key] = _settings(checked.model_dump(exclude_none=True, exclude={"note"}), data)
        return self._alike[key] or {}


def _settings(values: Fields, data: Fields) -> Fields:
    out: Fields = {
        name: _kept(data, name, values[name]) for name in ("paused", "concurrency", "rate") if name in values
    }
    for group in ("lanes", "repeatables"):
        for name, fields in values.get(group, {}).items():
            below = data[group][name]
            entry = {key: _kept(below, key, value) for key, value in fields.items() if key != "note"}
            if entry:
                out.setdefault(group, {})[name] = entry
    return out


def _kept(data: Fields, name: str, value: Any) -> Any:
    """`value`, or the text with its reference where that is what was written."""
    return data[name] if has_reference(data.get(name)) else value
