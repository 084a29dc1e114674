"""Templates and expressions, checked when they are read, compiled once, evaluated in place within a budget.

The language of ``when`` in playbooks, of the conditions of plan rules, alerts and stops: Jinja's expressions on plain
values, with the literals and the operator of `literals`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import regex
from jinja2 import TemplateError, TemplateSyntaxError, UndefinedError, nodes
from jinja2.nativetypes import NativeTemplate
from jinja2.parser import Parser
from jinja2.runtime import Context

from emq_ops.policy.words import did_you_mean, nearest
from emq_ops.syntax import filters, taint
from emq_ops.syntax.budget import MAX_VALUE, TooLarge
from emq_ops.syntax.errors import Position, SourceError, kind_of
from emq_ops.syntax.sandbox import GLOBALS, Counting, Sandbox, plain, text_of

MAX_SOURCE = 64 << 10
_REFUSED = (
    nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport, nodes.Block, nodes.Macro, nodes.CallBlock,
    nodes.AssignBlock, nodes.FilterBlock,
)  # fmt: skip


class EvaluationError(ValueError):
    """An expression that could not be evaluated. `undefined`: because something is undefined."""

    def __init__(self, what: str, *, undefined: bool = False) -> None:
        super().__init__(what)
        self.undefined = undefined


def no_lookup(*_what: Any, **_other: Any) -> Any:
    """``lookup``, where nothing may be looked up."""
    raise EvaluationError("lookup is not taken here")


@dataclass(frozen=True)
class Compiled:
    """A template or expression, parsed. `names`: what it reads; `guarded`: those it can do without
    (``is defined``, ``default``). `single`: one expression, so its type is kept."""

    source: str
    names: frozenset[str]
    guarded: frozenset[str]
    single: bool
    constant: bool
    tree: nodes.Template
    reads: tuple[tuple[str, ...], ...]
    """The variables that it reads, with the keys that are read of each, such as ``("seen", "dead")``."""
    env: Sandbox

    @functools.cached_property
    def _template(self) -> NativeTemplate:
        code = self.env.compile(self.tree)
        return NativeTemplate.from_code(self.env, code, {}, None)  # type: ignore[return-value]  # typed as its base

    def run(self, values: Mapping[str, Any], lookup: Callable[..., Any] = no_lookup) -> Any:
        """The value, as plain data: of its own type where it is one expression, else text. (Jinja would also read a
        text that looks like Python as Python.) Raises EvaluationError."""
        if self.constant:
            return "".join(part.data for part in self.tree.find_all(nodes.TemplateData))
        try:
            return self._run(values, lookup)
        except Exception as fault:  # noqa: BLE001  # whatever a filter raises is the template's fault
            undefined = isinstance(fault, UndefinedError) or getattr(fault, "undefined", False)
            raise EvaluationError(_described(fault), undefined=undefined) from None

    def _run(self, values: Mapping[str, Any], lookup: Callable[..., Any]) -> Any:
        budget = self.env.fresh()
        names = {**values, "lookup": lookup, "range": self.env.globals["range"]}
        parts = self._template.root_render_func(Context(self.env, names, None, {}))
        if self.single:
            found: Any = next(iter(parts))
            return found if isinstance(found, bool) else plain(found)
        texts: list[str] = []
        size = 0
        for part in parts:
            texts.append(text_of(part))
            size += len(texts[-1])
            budget.spend(len(texts[-1]) + 16)
            if size > MAX_VALUE:
                raise TooLarge(f"a value larger than {MAX_VALUE >> 20} MiB")
        return taint.joined(texts)


def _described(fault: BaseException) -> str:
    """What an evaluation raised, in one clause."""
    if isinstance(fault, TemplateError):
        return fault.message or type(fault).__name__
    if isinstance(fault, EvaluationError):
        return str(fault.args[0] if fault.args else fault) or type(fault).__name__
    if isinstance(fault, RecursionError | SyntaxError):
        return "nested too deeply"
    if isinstance(fault, ZeroDivisionError):
        return "division by zero"
    if isinstance(fault, OverflowError) and not isinstance(fault.args[0], str):
        return "a number too large to count with"
    if isinstance(fault, MemoryError):
        return "it takes too much memory"
    if isinstance(fault, regex.error):
        return f"not a regular expression: {fault}"
    if isinstance(fault, TimeoutError):
        return f"takes more than {filters.REGEX_SECONDS:g} s of CPU: a regular expression that tries for ever"
    return str(fault) or type(fault).__name__


class Compiler:
    """Parses templates and expressions, each source once."""

    def __init__(self) -> None:
        self.env = Sandbox()
        self.template = functools.lru_cache(maxsize=4096)(self._template)
        self.expression = functools.lru_cache(maxsize=4096)(self._expression)

    def _template(self, source: str) -> Compiled:
        """Text with ``{{ }}`` in it. Raises TemplateSyntaxError."""
        tree = _parsed(source, lambda: self.env.parse(source))
        body = tree.body
        parts = body[0].nodes if len(body) == 1 and isinstance(body[0], nodes.Output) else []
        return self._compiled(source, tree, len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData))

    def _expression(self, source: str) -> Compiled:
        """A bare expression, as in ``when``. Raises TemplateSyntaxError."""

        def parse() -> nodes.Template:
            parser = Parser(self.env, source, state="variable")
            if parser.stream.eos:
                raise TemplateSyntaxError("an empty expression", 1)
            found = parser.parse_expression()
            rest = parser.stream.current
            if rest.type != "eof":
                raise TemplateSyntaxError("more text after the end of the expression", rest.lineno)
            return nodes.Template([nodes.Output([found], lineno=1)], lineno=1)

        return self._compiled(source, _parsed(source, parse), True)

    def _compiled(self, source: str, tree: nodes.Template, single: bool) -> Compiled:
        loaded: set[str] = set()
        stored: set[str] = set()
        guarded: set[str] = set()
        constant = True
        try:
            for node in tree.find_all(nodes.Node):
                self._check(node)
                constant = constant and isinstance(node, nodes.Output | nodes.TemplateData)
                if isinstance(node, nodes.Filter | nodes.Test):
                    if isinstance(node.node, nodes.Name) and node.name in ("default", "d", "defined", "undefined"):
                        guarded.add(node.node.name)
                elif isinstance(node, nodes.Name):
                    (loaded if node.ctx == "load" else stored).add(node.name)
            reads = _reads(tree)
            tree = Counting().visit(tree)
            tree.set_environment(self.env)
        except RecursionError:
            raise TemplateSyntaxError("nested too deeply", 1) from None
        names = frozenset(loaded) - GLOBALS - ({"loop"} if stored else set())
        return Compiled(source, names, frozenset(guarded | stored), single, constant, tree, reads, self.env)

    def _check(self, node: nodes.Node) -> None:
        if isinstance(node, _REFUSED) or (isinstance(node, nodes.For) and node.recursive):
            word = "recursive" if isinstance(node, nodes.For) else type(node).__name__.lower()
            raise TemplateSyntaxError(f"'{word}' is not taken in a template", node.lineno)
        if isinstance(node, nodes.Const) and isinstance(node.value, float) and not math.isfinite(node.value):
            raise TemplateSyntaxError("a number too large to count with", node.lineno)
        if isinstance(node, nodes.Filter | nodes.Test):
            kind, known = ("filter", filters.FILTERS) if isinstance(node, nodes.Filter) else ("test", filters.TESTS)
            if node.name not in known:
                raise TemplateSyntaxError(f"unknown {kind} '{node.name}'", node.lineno)


def _parsed(source: str, parse: Callable[[], nodes.Template]) -> nodes.Template:
    if len(source) > MAX_SOURCE:
        raise TemplateSyntaxError(f"a template longer than {MAX_SOURCE >> 10} KiB", 1)
    try:
        return parse()
    except RecursionError:
        raise TemplateSyntaxError("nested too deeply", 1) from None


def _reads(tree: nodes.Template) -> tuple[tuple[str, ...], ...]:
    found: list[tuple[str, ...]] = []
    rest: list[nodes.Node] = [tree]
    while rest:
        node = rest.pop()
        path = _path(node)
        if path is None:
            rest += node.iter_child_nodes()
        elif path[0] not in GLOBALS:
            found.append(path)
    return tuple(found)


def _path(node: nodes.Node) -> tuple[str, ...] | None:
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr):
        inner = _path(node.node)
        return (*inner, node.attr) if inner is not None else None
    return None


def syntax_fault(fault: TemplateSyntaxError) -> tuple[str, str | None]:
    """What is wrong with an expression, and a hint."""
    what = fault.message or "not an expression"
    kind = what.split("'")[0].strip()
    tables: dict[str, Collection[str]] = {"unknown filter": filters.FILTERS, "unknown test": filters.TESTS}
    return what, did_you_mean(what.split("'")[1], tables[kind]) if kind in tables else None


_compiler = functools.lru_cache(maxsize=1)(Compiler)


@dataclass(frozen=True)
class Condition:
    """An expression that must be true or false, read and checked once. `mark`: where it stands; `compiled`: None for
    a `literal`."""

    mark: Position
    source: str
    compiled: Compiled | None
    literal: bool = False

    @classmethod
    def read(cls, text: str, mark: Position, known: Collection[str]) -> Condition:
        """The condition that `text` says about the names of `known`. Raises SourceError with line and column."""
        try:
            compiled = _compiler().expression(text)
        except TemplateSyntaxError as fault:
            what, hint = syntax_fault(fault)
            raise SourceError(f"in the expression: {what}", mark.down(fault.lineno - 1), fix=hint) from None
        unknown = compiled.names - set(known) - compiled.guarded
        if unknown:
            name, at = min(((name, _offset(text, name)) for name in unknown), key=lambda found: found[1])
            close = nearest(name, known)
            fix = f"did you mean '{close}'?" if close else f"names are: {', '.join(sorted(known))}"
            raise SourceError(f"unknown name '{name}'", _moved(mark, text[:at]), fix=fix)
        return cls(mark, text, compiled)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds for `values`. Raises SourceError where it is neither true nor false, or can't be told."""
        if self.compiled is None:
            return self.literal
        try:
            found = self.compiled.run(values)
        except EvaluationError as fault:
            raise SourceError(f"in '{self.source[:80]}': {fault}", self.mark) from None
        if not isinstance(found, bool):
            raise SourceError(
                f"'{self.source[:80]}' must be true or false, it is {kind_of(found)}", self.mark, fix="compare it"
            )
        return found


def _offset(text: str, name: str) -> int:
    """Where `name` is first read in the expression `text`."""
    at, before = 0, ""
    for _, kind, value in _compiler().env.lexer.tokeniter(text, None, None, "variable"):
        if kind == "name" and value == name and before not in (".", "|"):
            return at
        at += len(value)
        before = value if kind != "whitespace" else before
    return 0


def _moved(mark: Position, before: str) -> Position:
    """The place behind the text `before`, which begins at `mark`."""
    lines = before.split("\n")
    column = mark.column + len(lines[0]) if len(lines) == 1 else len(lines[-1]) + 1
    return Position(mark.file, mark.line + len(lines) - 1, column)


__all__ = ["Compiled", "Compiler", "Condition", "EvaluationError", "syntax_fault", "text_of"]
