"""YAML 1.2 text as a stream of events, each with its place, from either of two parsers.

libyaml reads text about which it and YAML 1.2 agree, thirty times faster than a parser in Python. ruamel.yaml
(`careful`) reads everything else, and whatever libyaml refuses: it alone says what is wrong. Neither resolves scalars;
`core` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import yaml

EventKind = Literal["scalar", "alias", "mapping", "sequence", "end", "document", "over"]


class YamlEvent(NamedTuple):
    """One step of the parser. `line` and `column` count from 1; `tag`: None where none is written; `plain`: a scalar
    without quotes; `block`: one behind ``|`` or ``>``; `kind`: "end" closes a mapping or sequence, "over" the document,
    "document" opens one."""

    kind: EventKind
    line: int
    column: int
    anchor: str | None = None
    tag: str | None = None
    text: str = ""
    plain: bool = False
    block: bool = False


class UnsureError(Exception):
    """libyaml does not take the text: it may be wrong, or only beyond YAML 1.1."""


# Beyond these characters (no tabs, carriage returns, line breaks of YAML 1.1), and in directives, ends of documents,
# block scalars, tags, `? keys` and anchors named with signs, the two versions of YAML or the two parsers differ.
_AGREED = re.compile("[\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
_APART = re.compile(
    r"^%|^\.\.\.|[|>][-+0-9]*(?: *#.*| *)$|(?:^|[\s\[{,])(?:!|\?(?:[\s,:\[\]{}]|$)|[&*][\w-]+[^\s\w,\]}-])",
    re.MULTILINE,
)

_SIGNS = ("%", "\n...", "|", ">", "!", "?", "&", "*")
"""Each that `_APART` takes has one of these."""

KINDS: dict[type, EventKind] = {
    yaml.ScalarEvent: "scalar",
    yaml.AliasEvent: "alias",
    yaml.MappingStartEvent: "mapping",
    yaml.MappingEndEvent: "end",
    yaml.SequenceStartEvent: "sequence",
    yaml.SequenceEndEvent: "end",
    yaml.DocumentStartEvent: "document",
    yaml.DocumentEndEvent: "over",
}


def parser_of(text: str) -> Any:
    """Returns libyaml's parser of `text`. Raises UnsureError."""
    require_agreed(text)
    return yaml.cyaml.CParser(text)


def require_agreed(text: str) -> None:
    """Raises UnsureError for text that libyaml and YAML 1.2 may read differently."""
    if not yaml.__with_libyaml__ or not _AGREED.fullmatch(text):
        raise UnsureError
    if any(sign in text for sign in _SIGNS) and _APART.search(text):  # most texts have none of them
        raise UnsureError


def fast(text: str) -> Iterator[YamlEvent]:
    """The events of `text` by libyaml. Raises UnsureError, at the first step or at a later one."""
    parser = parser_of(text)
    try:
        while (event := parser.get_event()) is not None:
            kind = KINDS.get(type(event))
            if kind is None:
                continue
            mark = event.start_mark
            if kind == "scalar":
                yield scalar_event(event, mark.line + 1, mark.column + 1)
            elif kind == "alias" or kind == "mapping" or kind == "sequence":
                tag = None if kind == "alias" else event.tag
                yield YamlEvent(kind, mark.line + 1, mark.column + 1, event.anchor, tag)
            else:
                yield YamlEvent(kind, mark.line + 1, mark.column + 1)
    except yaml.YAMLError:
        raise UnsureError from None


def scalar_event(event: Any, line: int, column: int) -> YamlEvent:
    """Returns a scalar of either parser."""
    plain, block = not event.style, event.style in ("|", ">")
    return YamlEvent("scalar", line, column, event.anchor, event.tag, event.value, plain, block)
