"""Plain data, as YAML or a revision has it, taken by the types of `policy.options`: values out, faults noted.

A field that is no text may hold a reference: it is resolved to be checked and used. A text keeps its references, unless
the values are for use at once (`Reader.use`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Literal, TypeVar

from emq_ops.policy.environment import resolves
from emq_ops.policy.kinds import SECRET, FieldType, Refused
from emq_ops.policy.options import Key, Listed, Nested, Shape, build, keys
from emq_ops.policy.references import ForbiddenReference, ReferenceFault, has_reference, names_of, resolve
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.masking import remember

T = TypeVar("T")
Path = tuple[str | int, ...]
Env = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at `path`. `sort`: a value or a name that is not taken, a key that is unknown, one that is missing.
    `known`: the keys that may stand there; `secret`: the value must not be shown."""

    path: Path
    expected: str
    hint: str = ""
    sort: Literal["value", "name", "unknown", "missing"] = "value"
    known: tuple[str, ...] = ()
    secret: bool = False


class Reader:
    """Reads with the references of `env`. `defer`: a reference to a variable that is not set stays as it is written,
    for who does not use it; `use`: texts are resolved, too. `faults`: all that was found wrong."""

    def __init__(self, env: Env, *, defer: bool = False, use: bool = False) -> None:
        self._env, self._defer, self._use = env, defer or not resolves(env), use
        self.faults: list[Fault] = []

    def section(self, kind: type[T], data: Any, path: Path = (), *, beside: type[Any] | None = None) -> T | None:
        """The `kind` that `data` says; None where that is at fault. Keys of `beside` may stand there, too."""
        values = self.values(kind, data, path, beside=beside)
        if values is None:
            return None
        try:
            return build(kind, values)
        except BadInputError as problem:
            self.faults.append(Fault(path, problem.what, problem.fix or ""))
            return None

    def values(
        self, kind: type[Any], data: Any, path: Path = (), *, beside: type[Any] | None = None
    ) -> dict[str, Any] | None:
        """The values of the keys that `data` says; None where any is at fault."""
        found = keys_with(kind, beside)
        if not isinstance(data, dict):
            self.faults.append(Fault(path, "a mapping", known=tuple(found)))
            return None
        before = len(self.faults)
        values: dict[str, Any] = {}
        for name, value in data.items():
            key = found.get(name)
            if key is None:
                self.faults.append(Fault((*path, name), "", sort="unknown", known=tuple(found)))
            else:
                none = value is None and key.optional
                values[name] = None if none else self._read(key.shape, value, (*path, name))
        for name, key in found.items():
            if key.default is MISSING and name not in data:
                self.faults.append(Fault((*path, name), "", sort="missing"))
        return values if len(self.faults) == before else None

    def _read(self, shape: Shape, value: Any, path: Path) -> Any:
        if isinstance(shape, FieldType):
            return self._value(shape, value, path)
        if isinstance(shape, Nested):
            read: Any = self.values if shape.loose else self.section
            return read(shape.of, value, path, beside=shape.beside)
        if isinstance(shape, Listed):
            return self._list(shape, value, path)
        if not isinstance(value, dict):
            self.faults.append(Fault(path, shape.words))
            return None
        for name in value:
            self._value(shape.name, name, (*path, name), sort="name")
        return self._alike(shape.item, value, path)

    def _alike(self, shape: Shape, value: dict[str, Any], path: Path) -> dict[str, Any]:
        """Each of the items. Those of a thousand queues are mostly alike: what says the same is read once."""
        found: dict[str, Any] = {}
        known: dict[str, Any] = {}
        same: dict[int, Any] = {}  # what is one object, and outlives this
        for name, below in value.items():
            if id(below) in same:
                found[name] = same[id(below)]
                continue
            said = repr(below)
            if said not in known:
                before = len(self.faults)
                found[name] = self._read(shape, below, (*path, name))
                if len(self.faults) > before:
                    continue
                known[said] = found[name]
            found[name] = same[id(below)] = known[said]
        return found

    def _list(self, shape: Listed, value: Any, path: Path) -> Any:
        if shape.single and isinstance(value, str):
            value = [value]
        if not isinstance(value, list | tuple):
            self.faults.append(Fault(path, shape.words))
            return None
        return tuple(self._read(shape.item, one, (*path, number)) for number, one in enumerate(value))

    def _value(self, kind: FieldType, value: Any, path: Path, sort: Literal["value", "name"] = "value") -> Any:
        try:
            if kind.text or not has_reference(value):
                taken = kind.take(value)
                if not (self._use and kind.text and sort == "value"):
                    return taken
                found = resolve(taken, self._env)
                if kind is SECRET:
                    remember(found, *names_of(taken))
                return found
            text = resolve(value, self._env)
        except ReferenceFault as problem:
            if problem.name is None:
                self.faults.append(Fault(path, kind.words, str(problem)))
            elif self._defer and not isinstance(problem, ForbiddenReference):
                return value
            else:
                hint = f"{problem}; {problem.fix}"
                self.faults.append(Fault(path, f"a value in {problem.name}", hint))
            return None
        except ValueError as problem:
            expected = getattr(problem, "expected", None) or kind.words
            secret = isinstance(problem, Refused) and problem.secret
            self.faults.append(Fault(path, expected, str(problem), sort=sort, secret=secret))
            return None
        try:
            return kind.given(text)
        except ValueError:
            self.faults.append(Fault(path, f"{kind.words}, which is not what the reference gives"))
            return None


_WITH: dict[tuple[type[Any], type[Any] | None], dict[str, Key]] = {}


def keys_with(kind: type[Any], beside: type[Any] | None = None) -> dict[str, Key]:
    """The keys of a type and of the one that may stand beside it. Shared: not to be changed."""
    found = _WITH.get((kind, beside))
    if found is None:
        found = _WITH[kind, beside] = keys(kind) if beside is None else keys(beside) | keys(kind)
    return found
