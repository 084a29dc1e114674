"""A file of many entries that say the same is read once a text, and its tree is the one that any other file gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emq_ops.config.effective import Layers
from emq_ops.config.loader import load
from emq_ops.syntax import quick, repeats
from emq_ops.syntax.errors import BUILT_IN, SourceError
from emq_ops.syntax.events import UnsureError
from emq_ops.syntax.tree import ListTree, MapTree, Tree, parse

LINES = [
    *("queues:", "  a:", "  b:", "  'm-*':", '  "c": # one', "  d: {}", "  e: {x: 1, y: [a, b]}  # two", "  f: {x: 1"),
    *("    stalled: {every: 30s}", "    dead:", "      keep: 3", "    note: 'a", "  b: c'", "      x: y}", "  - x"),
    *("", "   ", "# said", "  # said", "server: {url: 'x'}", "state:", "  url: y", "    g:", "  z: 1", "  h: *a"),
    *("  i: &a {x: 1}", "  <<: {x: 1}", "  j: 'text'", "  k: {a: 1}: 2", "  l: a: b", "note: 'queues:", "    {x: 1}"),
    *("- y", "---", "'"),
]


def told(tree: Tree) -> Any:
    """Everything that `tree` says, with its places."""
    if isinstance(tree, MapTree):
        return tree.mark, tree.size, {key: (mark, told(value)) for key, (mark, value) in tree.items.items()}
    return (tree.mark, tree.size, list(map(told, tree.items))) if isinstance(tree, ListTree) else tree


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=14).map("\n".join))
@example("queues:\n  a:\n    note: 'x\n  b:\n    note: y'\n")
@example("queues:\n  a:\n    {x: 1,\n  b: {}\n  }\n")
@example('queues:\n  a:\n  "b\\"":\n    x: 1\n')
@example("queues:\n  a: {}\n- x\n")
@example("note: 'x\nqueues:\n  a: {}\nb'\n")
def test_what_is_cut_apart_says_what_the_whole_says(text: str) -> None:
    try:
        found = repeats.document(text, "f", 1)
    except UnsureError:
        return
    assert told(found) == told(quick.document(text, "f"))


ENTRY = "    stalled: {every: 30s, max_stalled: %s}\n    dead:\n      keep: 100\n"


def test_each_text_is_parsed_once_and_each_entry_knows_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    whole = quick.document
    monkeypatch.setattr(quick, "document", lambda text, *more: parsed.append(text) or whole(text, *more))
    text = (
        "state: {}\nqueues:\n"
        + "".join(f"  q{n}:\n{ENTRY % (n % 3 + 1)}" for n in range(300))
        + "daemon: {threads: 2}\n"
    )
    tree = parse(text.encode(), "f")
    assert len(parsed) == 4
    assert told(tree) == told(whole(text, "f"))


def test_a_fault_in_a_repeated_entry_is_told_at_its_own_line(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    head = "queues:\n" + "".join(f"  q{n}:\n{ENTRY % 3}" for n in range(200))
    file.write_text(head + f"  bad:\n{ENTRY % 0}")
    with pytest.raises(SourceError, match=r"config\.yaml:803:40: queues\.bad\.stalled\.max_stalled: expected"):
        load([file], {})
    file.write_text(head + f"  bad:\n{ENTRY % 3}")
    layers = Layers(load([file], {}))
    places = {value.path: value.mark for value in layers.effective("q7").values() if value.mark != BUILT_IN}
    assert {path: mark.line for path, mark in places.items()} == {
        "stalled.every": 31, "stalled.max_stalled": 31, "dead.keep": 33,
    }  # fmt: skip
