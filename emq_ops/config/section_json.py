"""Sections as plain JSON, as they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emq_ops.config.explain import dotted, locate
from emq_ops.config.loader import Loaded
from emq_ops.config.models import Section
from emq_ops.config.places import anchored
from emq_ops.policy.options import Nested, keys, show
from emq_ops.policy.references import has_reference, references
from emq_ops.syntax.errors import Position

Json = dict[str, Any]


def section_json(loaded: Loaded, path: tuple[str | int, ...], model: Any, marks: dict[str, Position]) -> Json:
    """A section as plain JSON: built-in defaults filled in, references as written, relative file URLs made absolute;
    `marks` gets the places."""
    out: Json = {}
    for key, info in keys(type(model)).items():
        if key == "note" or (isinstance(info.shape, Nested) and info.shape.loose):
            continue  # what is loose holds for queues, and stands in the section of each
        value = info.of(model)
        here = (*path, key)
        mark, tree = locate(loaded.tree, here)
        marks[dotted(here)] = mark
        if isinstance(value, Section):
            out[key] = section_json(loaded, here, value, marks)
            continue
        raw = getattr(tree, "value", None)
        is_reference = isinstance(raw, str) and has_reference(raw) and bool(references(raw))
        said = raw if is_reference else show(info.shape, value)
        out[key] = anchored(said, Path(mark.file).absolute().parent) if isinstance(said, str) and mark.line else said
    return out
