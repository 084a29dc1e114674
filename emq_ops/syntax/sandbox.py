"""The sandbox in which expressions run: plain values, a short list of filters and methods, strict undefined.

Nothing of Python shows through: an attribute of a mapping is its key, and the only methods are those of
`filters.METHODS`. Every call, every turn of a loop and every operator that can make much of little takes from the
evaluation's `Budget` before it does anything; so each step is small, and a clock is looked at between any two.
"""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.lexer import TokenStream
from jinja2.nativetypes import NativeCodeGenerator, NativeEnvironment
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from emq_ops.policy.words import did_you_mean
from emq_ops.syntax import filters, taint
from emq_ops.syntax.budget import EACH, MAX_VALUE, EvaluationBudget, TooLarge, weigh
from emq_ops.syntax.errors import kind_of
from emq_ops.syntax.literals import with_literals

MAX_BITS = 4096
GLOBALS = frozenset({"lookup", "range"})
_LOOP = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem", "nextitem"})
_EACH, _JOINED, _READ = "_each", "_joined", "_read"


def plain(value: Any) -> Any:
    """`value` as None, bool, number, text, list or mapping of these; raises what an undefined part raises, and
    TooLarge past MAX_VALUE."""
    left = MAX_VALUE

    def walk(part: Any, depth: int) -> Any:
        nonlocal left
        left -= 16 + (len(part) if isinstance(part, str) else 0)
        if left < 0:
            raise TooLarge(f"a value larger than {MAX_VALUE >> 20} MiB")
        if depth > 60:
            raise TooLarge("a value nested too deeply")
        if isinstance(part, Undefined):
            return str(part)  # raises with its own words; only an ``if`` without ``else`` gives a lenient one
        if isinstance(part, float) and not math.isfinite(part):
            raise ValueError("a number too large to count with, or none at all")
        if part is None or isinstance(part, bool | int | float):
            return part
        if isinstance(part, str):
            return found(part)
        if isinstance(part, Mapping):
            return {_key(walk(k, depth + 1)): walk(v, depth + 1) for k, v in part.items()}
        if isinstance(part, Iterable) and not isinstance(part, bytes):
            return [walk(v, depth + 1) for v in part]
        raise ValueError(f"a {type(part).__name__} is not a value")

    return walk(value, 0)


def text_of(value: Any) -> str:
    """How a value stands inside a text: as it would in YAML."""
    value = plain(value)
    if isinstance(value, str):
        return value
    text = str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    if not taint.is_tainted(value):
        return text
    return taint.Tainted(text, json.dumps(_marked(value), ensure_ascii=False))


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return {_marked(key): _marked(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_marked(below) for below in value]
    return taint.marked(value) if isinstance(value, str) else value


def found(text: str) -> str:
    """A text as it is used. Raises ValueError for one that a resumed run has no more: it was made of a secret."""
    name = taint.lost(text) if taint.OPEN in text else None
    if name is not None:
        raise ValueError(f"it was made of ${{{name}}}, which no run stores: begin the playbook anew")
    return text if isinstance(text, taint.Tainted) else str(text)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


class _CodeGenerator(NativeCodeGenerator):
    """Folds no constants: that would turn a lone ``true`` into text, and work while compiling."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Any, finalize: Any) -> Any:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible()
        return super()._output_child_to_const(node, frame, finalize)


class Sandbox(NativeEnvironment, ImmutableSandboxedEnvironment):
    """The Jinja environment. No loader, so no files; no globals but ``range`` and ``lookup``."""

    code_generator_class = _CodeGenerator
    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, optimized=False, cache_size=0)
        self._local = threading.local()
        self.filters = {name: self._counted(name, found) for name, found in filters.FILTERS.items()}
        self.filters |= {_EACH: self._each, _JOINED: self._joined, _READ: self._read}
        self.tests = {name: self._counted(name, found) for name, found in filters.TESTS.items()}
        self._range: Any = self.globals["range"]
        self.globals = {"range": self.range}
        self.policies.clear()
        self.policies.update({"compiler.ascii_str": True, "truncate.leeway": 0})

    def fresh(self) -> EvaluationBudget:
        """The means of an evaluation that begins in this thread."""
        self._local.budget = EvaluationBudget()
        return self.budget

    @property
    def budget(self) -> EvaluationBudget:
        """The means of the evaluation of this thread."""
        found: EvaluationBudget = self._local.budget
        return found

    def _tokenize(self, source: str, name: str | None, filename: str | None = None, state: str | None = None) -> Any:
        stream = super()._tokenize(source, name, filename, state)
        return TokenStream(with_literals(stream), name, filename)

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call` (a filter or test) with what it reads and makes taken from the budget first."""
        first = 1 if hasattr(call, "jinja_pass_arg") else 0

        @functools.wraps(call)
        def counted(*args: Any, **named: Any) -> Any:
            given = args[first:]
            if given and isinstance(given[0], Iterator) and name not in ("map", "select", "reject"):
                given = (list(given[0]), *given[1:])
            self.budget.read(*given, *named.values())
            self.budget.make(filters.outcome(name, given, named))
            made = call(*args[:first], *given, **named)
            return self._tainted(name, made, given, named)

        return counted

    def _tainted(self, name: str, made: Any, given: Any, named: Mapping[str, Any]) -> Any:
        """What a filter made, tainted as what it was given is. Those that only choose among what they are given hand on
        the same texts; a text that is chosen from is no longer the same."""
        value = given[0] if given else None
        if isinstance(made, bool | Iterator) or (name in filters.CHOOSING and not isinstance(value, str)):
            return made
        if name == "join" and isinstance(value, list | tuple) and len(given) < 3 and not named.get("attribute"):
            between = given[1] if len(given) > 1 else named.get("d", "")
            parts = [part if isinstance(part, str) else str(part) for part in value]
            return taint.joined(parts, between) if taint.is_tainted(parts, between) else made
        if made is value:
            return made
        return taint.made_of(made, *given, *named.values())

    def _each(self, value: Any) -> Iterator[Any]:
        """The turns of a loop."""
        for item in value:
            self.budget.spend(EACH)
            yield item

    def _joined(self, parts: list[Any]) -> str:
        """The operator ``~``."""
        self.budget.read(parts)
        texts = [found(part) if isinstance(part, str) else str(part) for part in parts]
        self.budget.make(sum(len(text) for text in texts))
        return taint.joined(texts)

    def _read(self, value: Any) -> Any:
        """An operand of a comparison."""
        if isinstance(value, str | list | dict | tuple):
            self.budget.read(value)
        if isinstance(value, str):
            found(value)
        return value

    def range(self, *bounds: int) -> Any:
        """``range``, of a bounded length."""
        found = self._range(*bounds)
        self.budget.spend(16 * len(found))
        return found

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A mapping's key, else an allowed method."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        for kind, names in filters.METHODS.items():
            if isinstance(obj, kind) and attribute in names:
                return getattr(obj, attribute)
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        if attribute.startswith("_"):
            raise SecurityError(f"'{attribute}' can't be read from a template")
        return self._missing(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An element of a list, text or mapping."""
        if isinstance(argument, slice):
            self.budget.read(obj)
        try:
            return obj[argument]
        except (TypeError, LookupError):
            return self._missing(obj, argument)

    def _missing(self, obj: Any, name: Any) -> Any:
        if isinstance(obj, Undefined):
            return obj  # says the name that is really missing
        if isinstance(obj, Mapping):
            known = [str(key) for key in list(obj)[:50]]
            return self.undefined(
                f"there is no '{name}' in it ({did_you_mean(str(name), known) if known else 'empty'})"
            )
        part = f"element {name}" if isinstance(name, int) else f"'{name}'"
        return self.undefined(f"{kind_of(obj)} has no {part}")

    def is_safe_callable(self, obj: Any) -> bool:
        """Our two functions and the methods that `getattr` handed out."""
        if obj in self.globals.values() or getattr(obj, "__name__", "") == "lookup":
            return True
        owner = getattr(obj, "__self__", None)
        return isinstance(owner, taint.Tainted) or type(owner) in filters.METHODS

    def call(self, context: Any, obj: Any, /, *args: Any, **named: Any) -> Any:
        """A call of a function or method."""
        self.budget.read(getattr(obj, "__self__", None), *args, *named.values())
        made = super().call(context, obj, *args, **named)
        owner = getattr(obj, "__self__", None)
        return taint.made_of(made, owner) if isinstance(owner, taint.Tainted) else made

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators whose result can outgrow their operands, bounded before they run."""
        if operator == "%" and isinstance(left, str):
            raise ValueError("'%' on a text is not taken; join texts with '~'")
        sized = [side for side in (left, right) if isinstance(side, str | list | tuple)]
        if operator in ("*", "**"):
            bits, times = _bits(left), _bits(right)
            if (bits * abs(int(right)) if operator == "**" and times else bits + times) > MAX_BITS:
                raise TooLarge("a number too large to count with")
        if operator in ("*", "+") and sized:
            times = max(0, _as_count(left) or _as_count(right)) if operator == "*" else 1
            self.budget.make(times * sum(len(s) if isinstance(s, str) else weigh(s, MAX_VALUE) for s in sized))
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            return taint.joined((found(left), found(right)))
        made = super().call_binop(context, operator, left, right)
        return taint.made_of(made, left, right) if isinstance(made, str) else made


def _as_count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


class Counting(NodeTransformer):
    """Puts our counting between the parts of a parsed template: around what loops go over, ``~`` joins, and
    comparisons look at."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """A loop."""
        self.generic_visit(node)
        node.iter = _filtered(_EACH, node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """The operator ``~``."""
        self.generic_visit(node)
        return _filtered(_JOINED, nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """Comparisons, ``in`` too."""
        self.generic_visit(node)
        node.expr = _filtered(_READ, node.expr)
        for operand in node.ops:
            operand.expr = _filtered(_READ, operand.expr)
        return node


def _filtered(name: str, inner: Any) -> nodes.Expr:
    if isinstance(inner, nodes.Const):
        return inner
    return nodes.Filter(inner, name, [], [], None, None, lineno=inner.lineno)
