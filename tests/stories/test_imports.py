"""What commands import: the libraries of what a command does not use would be most of its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emq_ops.cli.root import table
from tests.support.command_lines import LINES, Stage, set_up, tree
from tests.support.imported import imported
from tests.support.valkey import Valkey


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("stage")
    with Valkey() as valkey, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield set_up(folder, valkey, 1)


def test_every_command_has_a_line() -> None:
    assert sorted(words for words, one in tree().items() if not getattr(one, "commands", None)) == sorted(LINES)


@pytest.mark.long
def test_no_command_imports_more_than_its_line_says(stage: Stage) -> None:
    ran = imported(stage.folder, [(line.imports, stage.argv(words, line)) for words, line in LINES.items()])
    found = dict(zip(LINES, ran, strict=True))
    assert {words: one.more for words, one in found.items() if one.more} == {}
    assert {words: one.err for words, one in found.items() if one.code not in (0, 1, 2, 4)} == {}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_no_command(option: str, tmp_path: Path) -> None:
    [one] = imported(tmp_path, [(["typer"], [option])])
    assert (one.code, one.more) == (0, ["cronsim"] if option == "--help" else [])


def test_a_summary_is_the_first_sentence_of_the_help() -> None:
    told = {words: tree()[words].get_short_help_str(limit=1000) for words in table()}
    assert told == {words: summary for words, (_, summary, *_) in table().items()}
