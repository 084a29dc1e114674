"""The filters, tests and methods that an expression may use; everything else is unknown to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, cast

import regex
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.tests import TESTS as JINJA_TESTS

from emq_ops.protocol import globs

METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        ("startswith", "endswith", "lower", "upper", "strip", "lstrip", "rstrip", "split", "title", "count", "isdigit")
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"index", "count"}),
}
"""What can be called on a value, by its type."""

_FILTERS = (
    "abs", "batch", "capitalize", "count", "d", "default", "dictsort", "first", "float", "groupby", "indent", "int",
    "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace",
    "reverse", "round", "select", "selectattr", "slice", "sort", "string", "sum", "title", "trim", "truncate",
    "unique", "upper", "wordcount",
)  # fmt: skip
_TESTS = (
    "boolean", "defined", "divisibleby", "eq", "equalto", "even", "false", "float", "ge", "gt", "greaterthan", "in",
    "integer", "iterable", "le", "lessthan", "lower", "lt", "mapping", "ne", "none", "number", "odd", "sequence",
    "string", "true", "undefined", "upper", "==", "!=", "<", "<=", ">", ">=",
)  # fmt: skip
CHOOSING = frozenset((
    "batch", "combine", "count", "d", "default", "dictsort", "difference", "first", "flatten", "groupby", "intersect",
    "items", "last", "length", "list", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr",
    "slice", "sort", "sum", "union", "unique", "wordcount",
))  # fmt: skip
"""Filters whose results are what they were given, or say no more than how many."""
REGEX_SECONDS = 1.0
"""How long a regular expression may take."""


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


def flatten(value: Any) -> list[Any]:
    """A list of lists as one list (one level)."""
    out: list[Any] = []
    for child in _listed(value, "flatten"):
        out.extend(child) if isinstance(child, list) else out.append(child)
    return out


def to_json(value: Any) -> str:
    """`value` as JSON text."""
    return json.dumps(value, sort_keys=True)


def regex_search(value: Any, pattern: str) -> str:
    """The first match of a regular expression in a text, or ''."""
    found = regex.search(pattern, str(value), timeout=REGEX_SECONDS)
    return found[0] if found else ""


def regex_replace(value: Any, pattern: str, by: str) -> str:
    """A text with every match of a regular expression replaced."""
    return str(regex.sub(pattern, by, str(value), timeout=REGEX_SECONDS))


def search(value: Any, pattern: str) -> bool:
    """Test: a regular expression matches somewhere in a text."""
    return regex.search(pattern, str(value), timeout=REGEX_SECONDS) is not None


def matches(value: Any, pattern: str) -> bool:
    """Test: a text is one that a glob takes (``mail-*``), whole."""
    return globs.compiled(str(pattern)).fullmatch(str(value)) is not None


FILTERS: dict[str, Callable[..., Any]] = {n: cast("Callable[..., Any]", JINJA_FILTERS[n]) for n in _FILTERS}
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
TESTS: dict[str, Callable[..., Any]] = {n: cast("Callable[..., Any]", JINJA_TESTS[n]) for n in _TESTS}
TESTS |= {"search": search, "matches": matches}


def outcome(name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> int:
    """What a filter may make of its arguments beyond their own size, in bytes or items: known before any of it is
    made. Only those that can make more than they get are named here."""

    def given(place: int, key: str, default: Any) -> Any:
        return args[place] if len(args) > place else named.get(key, default)

    value = args[0] if args else ""
    if name == "replace" and isinstance(value, str):
        old, new = str(given(1, "old", "")), str(given(2, "new", ""))
        return (value.count(old) if old else len(value) + 1) * len(new)
    if name == "regex_replace" and isinstance(value, str):
        return 2 * (len(value) + 1) * (len(str(given(2, "by", ""))) + 1)
    if name == "indent" and isinstance(value, str):
        width = given(1, "width", 4)
        return (value.count("\n") + 1) * (width if isinstance(width, int) else len(str(width)))
    if name == "join":
        return _length(value) * len(str(given(1, "d", "")))
    if name in ("batch", "slice"):
        parts = given(1, "linecount" if name == "batch" else "slices", 0)
        return 16 * parts if isinstance(parts, int) else 0
    if name in ("flatten", "sum") and isinstance(value, list):
        return 16 * sum(len(child) for child in value if isinstance(child, list)) * (len(value) if name == "sum" else 1)
    return 0


def _length(value: Any) -> int:
    return len(value) if isinstance(value, Sized) else 0
