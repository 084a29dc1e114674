"""The filters, tests and methods that a template may use; everything else is unknown to it.

`BOUNDED` are those whose work and result stay in proportion to their input: a template of only these is evaluated in
place. The others, and every loop, run in the killable child (`emq_ops.playbook.evaluator`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.tests import TESTS as JINJA_TESTS

METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        ("startswith", "endswith", "lower", "upper", "strip", "lstrip", "rstrip", "split", "title", "count", "isdigit")
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"index", "count"}),
}
"""What can be called on a value, by its type."""

_BOUNDED_BUILTIN = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length",
    "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "string",
    "title", "trim", "truncate", "unique", "upper",
)  # fmt: skip
_OTHER_BUILTIN = ("batch", "groupby", "indent", "join", "replace", "round", "slice", "sum", "wordcount")
_BUILTIN_TESTS = (
    "boolean", "defined", "divisibleby", "eq", "equalto", "even", "false", "float", "ge", "gt", "greaterthan", "in",
    "integer", "iterable", "le", "lessthan", "lower", "lt", "mapping", "ne", "none", "number", "odd", "sequence",
    "string", "true", "undefined", "upper", "==", "!=", "<", "<=", ">", ">=",
)  # fmt: skip

BOUNDED = frozenset(_BOUNDED_BUILTIN) | {
    "bool", "combine", "difference", "flatten", "from_json", "intersect", "to_json", "tojson", "union",
}  # fmt: skip
BOUNDED_TESTS = frozenset(_BUILTIN_TESTS)
BOUNDED_METHODS = frozenset().union(*METHODS.values())
BY_NAME = {"map": (0, BOUNDED), "select": (0, BOUNDED_TESTS), "reject": (0, BOUNDED_TESTS)} | {
    "selectattr": (1, BOUNDED_TESTS),
    "rejectattr": (1, BOUNDED_TESTS),
}
"""Filters that take the name of another filter or test: in which argument, and which of those are bounded."""


def to_bool(value: Any) -> bool:
    """``bool``: true, false, 1, 0 and the texts 'true', 'false', 'yes', 'no', 'on', 'off', '1', '0'."""
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    word = str(value).strip().lower()
    if word in ("true", "yes", "on", "1"):
        return True
    if word in ("false", "no", "off", "0"):
        return False
    raise ValueError(f"'{str(value)[:40]}' is neither true nor false")


def _listed(value: Any, what: str) -> list[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"'{what}' takes lists")
    return list(value)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def difference(left: Any, right: Any) -> list[Any]:
    """What is in the first list and not in the second, in order."""
    known = {_key(v) for v in _listed(right, "difference")}
    return [v for v in _listed(left, "difference") if _key(v) not in known]


def intersect(left: Any, right: Any) -> list[Any]:
    """What is in both lists, in the order of the first."""
    known = {_key(v) for v in _listed(right, "intersect")}
    return [v for v in _listed(left, "intersect") if _key(v) in known]


def union(left: Any, right: Any) -> list[Any]:
    """What is in either list, once."""
    both = _listed(left, "union") + _listed(right, "union")
    return list({_key(v): v for v in both}.values())


def combine(left: Any, right: Any) -> dict[str, Any]:
    """Two mappings in one; the second wins."""
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        raise ValueError("'combine' takes mappings")
    return {**left, **right}


MAX_ITEMS = 1 << 20
"""As many as a value of the largest size can hold (sandbox.MAX_VALUE, 16 bytes an item)."""


def flatten(value: Any) -> list[Any]:
    """A list of lists as one list (one level). Raises ValueError past MAX_ITEMS, before any of it is made: one list
    many times over is small, and what comes of it is not."""
    children = _listed(value, "flatten")
    if sum(len(child) if isinstance(child, list) else 1 for child in children) > MAX_ITEMS:
        raise ValueError(f"'flatten' makes a list of more than {MAX_ITEMS:,} items")
    out: list[Any] = []
    for child in children:
        out.extend(child) if isinstance(child, list) else out.append(child)
    return out


def to_json(value: Any) -> str:
    """`value` as JSON text."""
    return json.dumps(value, sort_keys=True)


def regex_search(value: Any, pattern: str) -> str:
    """The first match of a regular expression in a text, or ''."""
    found = re.search(pattern, str(value))
    return found[0] if found else ""


def regex_replace(value: Any, pattern: str, by: str) -> str:
    """A text with every match of a regular expression replaced."""
    return re.sub(pattern, by, str(value))


def search(value: Any, pattern: str) -> bool:
    """Test: a regular expression matches somewhere in a text."""
    return re.search(pattern, str(value)) is not None


FILTERS: dict[str, Callable[..., Any]] = {
    n: cast("Callable[..., Any]", JINJA_FILTERS[n]) for n in _BOUNDED_BUILTIN + _OTHER_BUILTIN
}
FILTERS |= {
    "bool": to_bool,
    "difference": difference,
    "intersect": intersect,
    "union": union,
    "combine": combine,
    "flatten": flatten,
    "to_json": to_json,
    "tojson": to_json,
    "from_json": json.loads,
    "regex_search": regex_search,
    "regex_replace": regex_replace,
}
TESTS: dict[str, Callable[..., Any]] = {n: cast("Callable[..., Any]", JINJA_TESTS[n]) for n in _BUILTIN_TESTS}
TESTS |= {"search": search}
