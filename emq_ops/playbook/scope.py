"""Variables and what is rendered with them: layers with a clear order, each value evaluated when it is asked for.

From low to high: the play's ``vars``, those of blocks and includes, the task's, what was registered or set, the loop's
item, and ``-e``. The language's own names (`words.MAGIC`) can't be set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateSyntaxError

from emq_ops.playbook.errors import PlaybookError, wrong
from emq_ops.playbook.model import Vars
from emq_ops.playbook.source import YamlNode
from emq_ops.policy.words import nearest
from emq_ops.syntax.errors import Position, kind_of
from emq_ops.syntax.expressions import Compiled, Compiler, Condition, EvaluationError, text_of

MAX_CHAIN = 50
MAX_SHOWN = 40
_UNDEFINED = re.compile(r"'(\w+)' is undefined")


@dataclass(frozen=True)
class Scope:
    """What a template sees. `ready`: mappings of plain values, `written`: mappings of nodes; the first that has a name
    wins: `extra`, then `ready` in order, then `written` in order."""

    extra: Vars
    ready: Sequence[Mapping[str, Any]]
    written: Sequence[Vars]

    def find(self, name: str) -> tuple[bool, Any]:
        """Whether `name` is there, and its value: a YamlNode or plain data."""
        if name in self.extra:
            return True, self.extra[name]
        for values in self.ready:
            if name in values:
                return True, values[name]
        for nodes in self.written:
            if name in nodes:
                return True, nodes[name]
        return False, None

    def names(self) -> Iterator[str]:
        """Every name that is there."""
        yield from self.extra
        for layer in (*self.ready, *self.written):
            yield from layer


class Renderer:
    """Turns nodes and conditions into values, with positions in whatever goes wrong."""

    def __init__(self, compiler: Compiler, lookup: Callable[..., Any]) -> None:
        self.compiler = compiler
        self._lookup = lookup

    def value(self, node: YamlNode, scope: Scope, chain: tuple[str, ...] = ()) -> Any:
        """The plain data of `node`, every template in it evaluated. Raises PlaybookError where one can't be."""
        if isinstance(node.value, dict):
            return {key: self.value(child, scope, chain) for key, child in node.value.items()}
        if isinstance(node.value, list):
            return [self.value(child, scope, chain) for child in node.value]
        if not isinstance(node.value, str) or "{" not in node.value:
            return node.value
        return self._run(self.compiler.template(node.value), node.pos, scope, chain)

    def conditions(self, conditions: Sequence[Condition], scope: Scope, word: str) -> list[tuple[str, bool]]:
        """The source of each (with the values in it where it does not hold), and whether it holds. Raises PlaybookError
        for one that is neither true nor false."""
        sources = [condition.source for condition in conditions]
        found = self._together(sources, conditions, scope) if len(conditions) > 1 else None
        if found is None:
            found = [self.condition(condition, scope, word) for condition in conditions]
        return [
            (condition.source if holds else self.explained(condition, scope), holds)
            for condition, holds in zip(conditions, found, strict=True)
        ]

    def explained(self, condition: Condition, scope: Scope) -> str:
        """The source of a condition, and what the variables in it are."""
        values = {}
        reads = condition.compiled.reads if condition.compiled is not None else ()
        for path in sorted({".".join(keys) for keys in reads}, key=condition.source.find):
            with suppress(TemplateSyntaxError, PlaybookError):
                found = self._run(self.compiler.expression(path), condition.mark, scope, ())
                if not isinstance(found, str | list | dict) or len(found) <= MAX_SHOWN:
                    values[path] = found
        said = ", ".join(f"{path} is {text_of(value)}" for path, value in list(values.items())[:MAX_SHOWN])
        return f"{condition.source} ({said})" if said else condition.source

    def _together(self, sources: list[str], conditions: Sequence[Condition], scope: Scope) -> list[bool] | None:
        """What they come to as one expression, which is far cheaper; None where each is to speak for itself."""
        try:
            joined = self.compiler.expression(f"[{', '.join(f'({source})' for source in sources)}]")
            found = self._run(joined, conditions[0].mark, scope, ())
        except (TemplateSyntaxError, PlaybookError):  # too long together, or one of them is at fault
            return None
        fine = isinstance(found, list) and all(isinstance(value, bool) for value in found)
        return found if fine else None

    def condition(self, condition: Condition, scope: Scope, word: str) -> bool:
        """Whether it holds. Raises PlaybookError where it is neither true nor false."""
        if condition.compiled is None:
            return condition.literal
        found = self._run(condition.compiled, condition.mark, scope, ())
        if not isinstance(found, bool):
            hint = "such as: name | bool" if isinstance(found, str) else "compare it, such as: name > 0"
            if isinstance(found, list | dict):
                hint = "such as: name | length > 0"
            wrong(condition.mark, f"'{word}' must be true or false, '{condition.source}' is {kind_of(found)}", hint)
        return found

    def _run(self, compiled: Compiled, pos: Position, scope: Scope, chain: tuple[str, ...]) -> Any:
        values: dict[str, Any] = {}
        for name in compiled.names:
            there, found = scope.find(name)
            if not there:
                continue
            if not isinstance(found, YamlNode):
                values[name] = found
            elif isinstance(found.value, str | list | dict):
                values[name] = self._variable(name, found, scope, chain)
            else:
                values[name] = found.value
        try:
            return compiled.run(values, self._lookup)
        except EvaluationError as fault:
            missing = _UNDEFINED.fullmatch(str(fault))
            near = nearest(missing[1], scope.names()) if missing else None
            what = f"variable {fault}" if missing else f"in '{compiled.source.strip()[:80]}': {fault}"
            wrong(pos, what, f"did you mean '{near}'?" if near else None)

    def _variable(self, name: str, node: YamlNode, scope: Scope, chain: tuple[str, ...]) -> Any:
        if name in chain or len(chain) > MAX_CHAIN:
            wrong(node.pos, f"variable '{name}' is made from itself", " -> ".join((*chain, name)))
        return self.value(node, scope, (*chain, name))
