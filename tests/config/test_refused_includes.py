"""Includes and overlays that are refused: loops, missing files, files of nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emq_ops.config.loader import load
from emq_ops.syntax.errors import SourceError

NOTHING = "the file says nothing (write what holds, or {} for nothing but defaults)"


@pytest.mark.parametrize("place", ["an overlay", "an included file"])
def test_no_file_of_several_may_be_empty(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was cut off would silently take away the queues that stood in it."""
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("include: b.yaml\n" if place == "an included file" else "queues: {orders: {}}\n")
    Path("b.yaml").write_text("# nothing yet\n")
    files = [Path("a.yaml")] if place == "an included file" else [Path("a.yaml"), Path("b.yaml")]
    with pytest.raises(SourceError) as caught:
        load(files, {})
    assert str(caught.value) == f"b.yaml:1:1: {NOTHING}"


def test_include_loop_names_its_links(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("include: b.yaml\n")
    (tmp_path / "b.yaml").write_text("include: [c.yaml]\n")
    (tmp_path / "c.yaml").write_text("queues: {}\ninclude: a.yaml\n")
    with pytest.raises(SourceError) as caught:
        load([tmp_path / "a.yaml"], {})
    assert "c.yaml:2:10: include: an include loop: a.yaml -> b.yaml -> c.yaml -> a.yaml" in str(caught.value)


def test_a_missing_include_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("queues: {}\ninclude: [gone.yaml]\n")
    with pytest.raises(SourceError) as caught:
        load([tmp_path / "a.yaml"], {})
    assert "a.yaml:2:11: include: can't read" in str(caught.value)
    assert "gone.yaml: No such file or directory" in str(caught.value)


def test_a_pattern_of_includes_that_takes_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("queues: {}\ninclude: ['conf.d/*.yaml']\n")
    with pytest.raises(SourceError) as caught:
        load([tmp_path / "a.yaml"], {})
    said = f"{tmp_path}/a.yaml:2:11: include: the pattern 'conf.d/*.yaml' takes no file (it starts from {tmp_path}; "
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("include", "said"),
    [
        ('"a\\0b"', "can't read"),
        ("loop", "can't read"),
        ("pipe", "no regular file"),
        ('"pip*"', "no regular file"),
        (".", "no regular file"),
        ('"a**"', "can't look for a**"),
        ('"**a/x"', "can't look for **a/x"),
    ],
)
def test_an_include_that_is_no_file_or_no_pattern(tmp_path: Path, include: str, said: str) -> None:
    """A pipe is not waited for, and what the file system refuses is said with its place."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a.yaml").write_text(f"queues: {{}}\ninclude: [{include}]\n")
    with pytest.raises(SourceError) as caught:
        load([tmp_path / "a.yaml"], {})
    assert "a.yaml:2:11: include: " in str(caught.value)
    assert said in str(caught.value)
