"""The sandbox in which expressions run: plain values, a short list of filters and methods, strict undefined.

Nothing of Python shows through: an attribute of a mapping is its key, and the only methods are those of
`filters.METHODS`. Operators are bounded. Whether a template can take long, or much memory, is decided from its syntax
(`Compiled.plain`), from what it reads (`Compiled.light`), and from what it makes (`TooMuchHere`).
"""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.nativetypes import NativeCodeGenerator, NativeEnvironment, NativeTemplate
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from emq_ops.playbook import filters
from emq_ops.playbook.source import kind_of
from emq_ops.policy.words import did_you_mean

MAX_SOURCE = 64 << 10
MAX_VALUE = 16 << 20
"""Bytes that one result may take, roughly."""
MAX_BITS = 4096
MAX_HERE = 64 << 10
"""Bytes, roughly, that a template may read, and may make by operators, where it is evaluated in place: even what goes
up with their square is little then."""

_REFUSED = (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport, nodes.Block, nodes.Macro, nodes.CallBlock)
_PLAIN = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.Getattr, nodes.Getitem,
    nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div,
    nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Neg, nodes.Pos, nodes.Concat, nodes.CondExpr, nodes.List, nodes.Tuple,
    nodes.Dict, nodes.Pair, nodes.Slice, nodes.If, nodes.Keyword,
)  # fmt: skip
_LOOP = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem", "nextitem"})
_GLOBALS = frozenset({"lookup", "range"})


class TooLarge(ValueError):
    """A value outgrew its bound."""


class TooMuchHere(Exception):
    """The template makes more than one that is evaluated in place may."""


def weigh(value: Any, most: int) -> int:
    """The size of plain data in bytes, roughly; `most` at most, and no dearer than that."""
    left, rest = most, [value]
    while rest and left > 0:
        part = rest.pop()
        left -= 16
        if isinstance(part, str):
            left -= len(part)
        elif isinstance(part, dict):
            left -= 16 * len(part)
            if left > 0:
                rest += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            left -= 16 * len(part)
            if left > 0:
                rest += part
    return most - max(0, left)


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
            return str(part)
        if isinstance(part, Mapping):
            return {str(walk(k, depth + 1)): walk(v, depth + 1) for k, v in part.items()}
        if isinstance(part, Iterable) and not isinstance(part, bytes):
            return [walk(v, depth + 1) for v in part]
        raise ValueError(f"a {type(part).__name__} is not a value")

    return walk(value, 0)


def text_of(value: Any) -> str:
    """How a value stands inside a text: as it would in YAML."""
    value = plain(value)
    return str(value) if isinstance(value, str | float) else json.dumps(value, ensure_ascii=False)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


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

    def __init__(self, most: int | None = None) -> None:
        """`most`: bytes that operators may make in one evaluation, else TooMuchHere; None: no such bound."""
        super().__init__(undefined=StrictUndefined, autoescape=False, optimized=False, cache_size=0)
        self.most = most
        self._made = threading.local()
        self.filters = dict(filters.FILTERS)
        self.tests = dict(filters.TESTS)
        self._range: Any = self.globals["range"]
        self.globals = {"range": self.range}
        self.policies.clear()
        self.policies.update({"compiler.ascii_str": True, "truncate.leeway": 0})

    def fresh(self) -> None:
        """An evaluation begins."""
        self._made.size = 0

    def _make(self, size: int) -> None:
        if self.most is not None:
            self._made.size += size
            if self._made.size > self.most:
                raise TooMuchHere

    def range(self, *bounds: int) -> Any:
        """``range``, of a bounded length."""
        found = self._range(*bounds)
        self._make(16 * len(found))
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
        return type(getattr(obj, "__self__", None)) in filters.METHODS

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators whose result can outgrow their operands, bounded before they run."""
        if operator == "%" and isinstance(left, str):
            raise ValueError("'%' on a text is not taken; join texts with '~'")
        if operator in ("*", "**"):
            if _size(left) * _as_count(right) > MAX_VALUE or _size(right) * _as_count(left) > MAX_VALUE:
                raise TooLarge(f"a value larger than {MAX_VALUE >> 20} MiB")
            bits, times = _bits(left), _bits(right)
            if (bits * abs(int(right)) if operator == "**" and times else bits + times) > MAX_BITS:
                raise TooLarge("a number too large to count with")
        if self.most is not None and operator in ("*", "+") and (_size(left) or _size(right)):
            times = (_as_count(left) or _as_count(right)) if operator == "*" else 1
            parts = [side for side in (left, right) if _size(side)]
            self._make(times * sum(len(p) if isinstance(p, str) else weigh(p, self.most + 1) for p in parts))
        return super().call_binop(context, operator, left, right)


def _as_count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


@dataclass(frozen=True)
class Compiled:
    """A template or expression, parsed. `names`: what it reads; `guarded`: those it can do without
    (``is defined``, ``default``). `plain`: bounded by its syntax. `single`: one expression, so its type is kept."""

    source: str
    names: frozenset[str]
    guarded: frozenset[str]
    plain: bool
    single: bool
    constant: bool
    tree: nodes.Template
    env: Sandbox

    @functools.cached_property
    def template(self) -> NativeTemplate:
        """Compiled code. Only for plain ones outside the child: compiling folds constants."""
        code = self.env.compile(self.tree)
        return NativeTemplate.from_code(self.env, code, {}, None)  # type: ignore[return-value]  # typed as its base

    @functools.cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The variables that it reads, with the keys that are read of each, such as ``("seen", "dead")``. In no order,
        each as often as it is read."""
        found: list[tuple[str, ...]] = []
        rest: list[nodes.Node] = [self.tree]
        while rest:
            node = rest.pop()
            path = _path(node)
            if path is None:
                rest += node.iter_child_nodes()
            elif path[0] not in _GLOBALS:
                found.append(path)
        return tuple(found)

    def light(self, values: Mapping[str, Any]) -> bool:
        """Whether it reads so little that it can be evaluated in place."""
        most = MAX_HERE // max(1, len(self.reads))
        for name, *keys in self.reads:
            value = values.get(name)
            for key in keys:
                if not isinstance(value, dict) or key not in value:
                    break
                value = value[key]
            if isinstance(value, str | list | dict) and weigh(value, most) >= most:
                return False
        return True

    def run(self, values: Mapping[str, Any], lookup: Callable[..., Any]) -> Any:
        """The value, as plain data: of its own type where it is one expression, else text. (Jinja would also read a
        text that looks like Python as Python.) Raises Jinja's errors, ValueError, TypeError and the like."""
        if self.constant:
            return "".join(part.data for part in self.tree.find_all(nodes.TemplateData))
        self.env.fresh()
        names = {**values, "lookup": lookup, "range": self.env.globals["range"]}
        parts = self.template.root_render_func(Context(self.env, names, None, {}))
        if self.single:
            found: Any = next(iter(parts))
            return found if isinstance(found, bool) else plain(found)
        return plain("".join(text_of(part) for part in parts))


def _path(node: nodes.Node) -> tuple[str, ...] | None:
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr):
        inner = _path(node.node)
        return (*inner, node.attr) if inner is not None else None
    return None


class Compiler:
    """Parses templates and expressions, each source once."""

    def __init__(self, most: int | None = MAX_HERE) -> None:
        """`most`: as of `Sandbox`."""
        self.env = Sandbox(most)
        self.template = functools.lru_cache(maxsize=4096)(self._template)
        self.expression = functools.lru_cache(maxsize=4096)(self._expression)

    def _template(self, source: str) -> Compiled:
        """Text with ``{{ }}`` in it. Raises TemplateSyntaxError."""
        self._check(source)
        tree = self._parsed(lambda: self.env.parse(source))
        body = tree.body
        parts = body[0].nodes if len(body) == 1 and isinstance(body[0], nodes.Output) else []
        return self._compiled(source, tree, len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData))

    def _expression(self, source: str) -> Compiled:
        """A bare expression, as in ``when``. Raises TemplateSyntaxError."""
        self._check(source)

        def parse() -> nodes.Template:
            parser = Parser(self.env, source, state="variable")
            if parser.stream.eos:
                raise TemplateSyntaxError("an empty expression", 1)
            found = parser.parse_expression()
            rest = parser.stream.current
            if rest.type != "eof":
                raise TemplateSyntaxError("more text after the end of the expression", rest.lineno)
            tree = nodes.Template([nodes.Output([found], lineno=1)], lineno=1)
            tree.set_environment(self.env)
            return tree

        return self._compiled(source, self._parsed(parse), True)

    @staticmethod
    def _check(source: str) -> None:
        if len(source) > MAX_SOURCE:
            raise TemplateSyntaxError(f"a template longer than {MAX_SOURCE >> 10} KiB", 1)

    @staticmethod
    def _parsed(parse: Callable[[], nodes.Template]) -> nodes.Template:
        try:
            return parse()
        except RecursionError:
            raise TemplateSyntaxError("nested too deeply", 1) from None

    def _compiled(self, source: str, tree: nodes.Template, single: bool) -> Compiled:
        # Jinja's own find_undeclared_variables generates code, which folds constants: a hang in this process.
        guarded: set[str] = set()
        loaded: set[str] = set()
        stored: set[str] = set()
        bounded = True
        constant = True
        try:
            for node in tree.find_all(nodes.Node):
                if isinstance(node, _REFUSED):
                    word = type(node).__name__.lower()
                    raise TemplateSyntaxError(f"'{word}' is not taken in a template", node.lineno)
                if isinstance(node, nodes.Const) and isinstance(node.value, float) and not math.isfinite(node.value):
                    raise TemplateSyntaxError("a number too large to count with", node.lineno)
                bounded = bounded and _bounded(node)
                constant = constant and isinstance(node, nodes.Output | nodes.TemplateData)
                if isinstance(node, nodes.Filter | nodes.Test):
                    self._known(node)
                    if isinstance(node.node, nodes.Name) and node.name in ("default", "d", "defined", "undefined"):
                        guarded.add(node.node.name)
                elif isinstance(node, nodes.Name):
                    (loaded if node.ctx == "load" else stored).add(node.name)
        except RecursionError:
            raise TemplateSyntaxError("nested too deeply", 1) from None
        names = frozenset(loaded) - _GLOBALS - ({"loop"} if stored else set())
        return Compiled(source, names, frozenset(guarded | stored), bounded, single, constant, tree, self.env)

    def _known(self, node: nodes.Filter | nodes.Test) -> None:
        kind, known = ("filter", self.env.filters) if isinstance(node, nodes.Filter) else ("test", self.env.tests)
        if node.name not in known:
            raise TemplateSyntaxError(f"unknown {kind} '{node.name}'", node.lineno)


def _bounded(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Filter):
        if node.name in filters.BY_NAME:
            place, known = filters.BY_NAME[node.name]
            inner = node.args[place : place + 1]
            return all(isinstance(arg, nodes.Const) and arg.value in known for arg in inner)
        return node.name in filters.BOUNDED
    if isinstance(node, nodes.Test):
        return node.name in filters.BOUNDED_TESTS
    if isinstance(node, nodes.Call):
        called = node.node
        if isinstance(called, nodes.Name):
            return called.name in _GLOBALS
        return isinstance(called, nodes.Getattr) and called.attr in filters.BOUNDED_METHODS
    return isinstance(node, _PLAIN)
