"""YAML 1.2 text by ruamel.yaml: what libyaml does not take, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

from ruamel.yaml import YAML, events
from ruamel.yaml.error import YAMLError, YAMLStreamError

from emq_ops.syntax.errors import Position, SourceError
from emq_ops.syntax.events import EventKind, YamlEvent, scalar_event

FAULTS = (YAMLError, YAMLStreamError)
_KINDS: dict[type, EventKind] = {
    events.ScalarEvent: "scalar",
    events.AliasEvent: "alias",
    events.MappingStartEvent: "mapping",
    events.MappingEndEvent: "end",
    events.SequenceStartEvent: "sequence",
    events.SequenceEndEvent: "end",
    events.DocumentStartEvent: "document",
    events.DocumentEndEvent: "over",
}


def sure(text: str) -> Iterator[YamlEvent]:
    """The events of `text` by ruamel.yaml. Raises its YAMLError."""
    for event in YAML(typ="safe", pure=True).parse(text):
        kind = _KINDS.get(type(event))
        if kind is None:
            continue
        place = event.start_mark.line + 1, event.start_mark.column + 1
        if kind == "scalar":
            yield scalar_event(event, *place)
        elif kind == "alias" or kind == "mapping" or kind == "sequence":
            yield YamlEvent(kind, *place, event.anchor, None if kind == "alias" else event.tag)
        else:
            yield YamlEvent(kind, *place)


def refusal(fault: Exception, text: str, file: str) -> SourceError:
    """Returns one of FAULTS in our words, with its place in `text`."""
    place = getattr(fault, "problem_mark", None) or getattr(fault, "context_mark", None)
    problem = str(getattr(fault, "problem", None) or fault).strip().split("\n")[0]
    line, column = (place.line, place.column) if place is not None else _unprintable(fault, text)
    lines = text.split("\n")
    shown = lines[line] if line < len(lines) else ""
    fix = None
    if "\t" in shown[: max(column, len(shown) - len(shown.lstrip()))] or "'\\t'" in problem:
        problem, fix = "a tab indents this line", "YAML takes spaces only"
    elif "${" in shown and ("{" in shown.replace("${", "") or "[" in shown):
        fix = 'inside { } and [ ] put a reference in quotes: "${NAME}"'
    elif "mapping values" in problem:
        fix = "quote a text that holds ': ' or begins with '{{'"
    elif getattr(fault, "position", None) is not None:
        problem, fix = "a control character", "leave it out"
    return SourceError(problem, Position(file, line + 1, column + 1), fix=fix)


def _unprintable(fault: object, text: str) -> tuple[int, int]:
    position = getattr(fault, "position", None)
    if not isinstance(position, int):
        return 0, 0
    line = text.count("\n", 0, position)
    return line, position - (text.rfind("\n", 0, position) + 1)
