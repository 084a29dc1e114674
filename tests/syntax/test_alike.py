"""Config files and playbooks are read by one reader: what a plain scalar says is the same in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emq_ops.config.loader import load
from emq_ops.playbook import source
from emq_ops.syntax.errors import SourceError

SCALARS = [
    ("1e3", 1000.0), ("+5", 5), ("-0", 0), ("0o10", 8), ("0x1F", 31), ("010", 10), (".5", 0.5), ("1.", 1.0),
    ("1_000", "1_000"), ("0b1", "0b1"), ("no", "no"), ("True", True), ("~", None), ("22:30", "22:30"), ("5%", "5%"),
    ("2026-03-01", "2026-03-01"), ("'5'", "5"), ("!!str 5", "5"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS, ids=[text for text, _ in SCALARS])
def test_a_scalar_says_the_same_in_a_config_and_in_a_playbook(text: str, value: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"x-free: {text}\n")
    (tmp_path / "play.yaml").write_text(f"x-free: {text}\n")
    node, _ = source.read(tmp_path / "play.yaml", "play.yaml")
    found = node.data()["x-free"]
    assert (found, type(found)) == (value, type(value))
    config.write_text(f"queues: {{orders: {{stalled: {{max_stalled: {text}}}}}}}\n")
    if type(value) is int and value > 0:
        load([config], {})
    elif value is not None:
        with pytest.raises(SourceError, match="max_stalled: expected a whole number, from 1 to 1000000"):
            load([config], {})


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2\n", "a: !!map 1\n", "a: &b [*b]\n", "a: *c\n", "a: 'x\x00'\n", "a:\n\tb: 1\n"]
)
def test_what_is_refused_is_refused_with_the_same_words(text: str, tmp_path: Path) -> None:
    said = []
    (tmp_path / "f.yaml").write_text(text)
    for read in (lambda path: load([path], {}), lambda path: source.read(path, str(path))):
        with pytest.raises(Exception, match=r"f\.yaml:[0-9]+:[0-9]+: ") as caught:
            read(tmp_path / "f.yaml")
        said.append(str(caught.value))
    assert said[0] == said[1]
