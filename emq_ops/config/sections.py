"""One section of a queue as fields: checked, built-in values filled in, references as written.

Sections that say the same share one result, whichever queues they stand under.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emq_ops.config.explain import dotted, explain, locate
from emq_ops.config.models import PassSection, QueueSection
from emq_ops.policy.environment import resolves
from emq_ops.policy.options import build, written
from emq_ops.policy.reading import Reader
from emq_ops.policy.references import has_reference
from emq_ops.policy.triggers import parse_cron
from emq_ops.protocol.errors import BadInputError
from emq_ops.syntax.errors import BUILT_IN, Position, SourceError
from emq_ops.syntax.tree import MapTree, Tree, plain

Fields = dict[str, Any]
"""Field -> value as the YAML would say it: numbers, switches, text (a duration is ``30s``), references as written.
Shared between queues: not to be changed."""

Alike = dict[tuple[str, str], Fields | None]


class Sections:
    """Builds the fields of one queue's sections. `alike` is what was built so far, for any queue."""

    def __init__(self, queue: str, env: Mapping[str, str], alike: Alike) -> None:
        self._queue, self._env, self._alike = queue, env, alike

    def checked(self, kind: type[Any], path: str, tree: Tree, *, beside: type[Any] | None = None) -> dict[str, Any]:
        """The values that `tree` says for a `kind`. Raises SourceError."""
        reader = Reader(self._env)
        values = reader.values(kind, plain(tree), beside=beside)
        if values is None:
            raise explain(reader.faults, tree, ("queues", self._queue, *(path.split(".", 1) if path else ())))
        return values

    def task(self, policy: type[Any], path: str, at: Position, tree: Tree) -> Fields | None:
        """A pass's fields; None where it is not enabled. `at`: the place of the section's key. Raises SourceError."""
        if not isinstance(tree, MapTree):
            return None
        data = plain(tree)
        key = (policy.__name__, repr(data))
        if key not in self._alike:
            values = self.checked(policy, path, tree, beside=PassSection)
            on = values.get("enabled", True)
            self._alike[key] = self._fields(policy, path, at, tree, values) if on else None
        return self._alike[key]

    def _fields(self, policy: type[Any], path: str, at: Position, tree: MapTree, values: Fields) -> Fields:
        where = dotted(["queues", self._queue, *path.split(".", 1)])
        unresolved: set[str] = set() if resolves(self._env) else {n for n, v in plain(tree).items() if has_reference(v)}
        try:
            built = build(policy, {name: value for name, value in values.items() if name not in unresolved})
        except BadInputError as fault:
            if unresolved:
                return dict(values)  # what the references give may well go together
            mark = locate(tree, (fault.where,))[0] if fault.where else at
            raise SourceError(fault.what, mark, path=where, fix=fault.fix) from None
        unfit = built.unfit()
        if unfit is not None and not unresolved:
            mark = locate(tree, (unfit.key,))[0] if unfit.key else at
            path = f"{where}.{unfit.key}" if unfit.key else where
            raise SourceError("", mark, path=path, expected=unfit.expected, got=unfit.got, fix=unfit.fix)
        data = plain(tree)
        return {name: _kept(data, name, value) for name, value in written(built).items()}

    def settings(self, tree: Tree | None) -> Fields:
        """Only what is written: ``{paused, concurrency, rate, lanes: {...}, repeatables: {...}}``."""
        if not isinstance(tree, MapTree):
            return {}
        data = plain(tree)
        key = ("Settings", repr(data))
        if key not in self._alike:
            whole = MapTree(BUILT_IN, {"settings": (tree.mark, tree)}, 1)
            found = self.checked(QueueSection, "", whole)["settings"]
            values = written(found)
            for name, fields in values["repeatables"].items():
                self._check_repeatable(name, fields, tree)
            self._alike[key] = _settings(values, data)
        return self._alike[key] or {}

    def _check_repeatable(self, name: str, fields: Fields, tree: MapTree) -> None:
        """A period, or a line of cron."""
        mark = locate(tree, ("repeatables", name))[0]
        path = dotted(["queues", self._queue, "settings", "repeatables", name])
        every, cron, zone = (fields.get(key) for key in ("every", "cron", "zone"))
        if (every is None) == (cron is None):
            got = "neither" if every is None else "both"
            raise SourceError("", mark, path=path, expected="one of every and cron", got=got)
        if zone is not None and cron is None:
            raise SourceError("", mark, path=f"{path}.zone", expected="none where there is no cron", got=str(zone))
        if cron is None or has_reference(cron) or has_reference(zone):
            return
        try:
            parse_cron(str(cron), None if zone is None else str(zone))
        except ValueError as fault:
            raise SourceError(f"{fault}", locate(tree, ("repeatables", name, "cron"))[0], path=f"{path}.cron") from None


def _settings(values: Fields, data: Fields) -> Fields:
    out: Fields = {
        name: _kept(data, name, values[name]) for name in ("paused", "concurrency", "rate") if values[name] is not None
    }
    for group in ("lanes", "repeatables"):
        for name, fields in values[group].items():
            below = data[group][name]
            said = {key: value for key, value in fields.items() if key != "note" and value is not None}
            entry = {key: _kept(below, key, value) for key, value in said.items()}
            if entry:
                out.setdefault(group, {})[name] = entry
    return out


def _kept(data: Fields, name: str, value: Any) -> Any:
    """`value`, or the text with its reference where that is what was written."""
    return data[name] if has_reference(data.get(name)) else value
