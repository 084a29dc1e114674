"""The loader: every transition is found, documented, included once, and the server takes it; imports stay light."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emq_ops.protocol import scripts
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server

FOLDER = Path(__file__).parents[2] / "lua"
HEAVY = ("boto3", "pyarrow", "sqlalchemy", "duckdb", "apscheduler", "typer", "rich")


def test_the_loader_finds_what_lies_in_the_folder() -> None:
    assert scripts.names() == sorted(path.stem for path in FOLDER.glob("*.lua"))
    assert len(scripts.names()) >= 30


@pytest.mark.parametrize("name", scripts.names())
def test_each_script_is_whole(name: str, server: Server) -> None:
    script = scripts.load(name)
    text = script.source.decode()
    assert script.sha == hashlib.sha1(script.source, usedforsecurity=False).hexdigest()
    assert server.write("SCRIPT", "LOAD", script.source).decode() == script.sha
    assert "--#include" not in text
    header = (FOLDER / f"{name}.lua").read_text().split("--#include")[0]
    for part in ("KEYS", "Replies"):
        assert part in header, f"lua/{name}.lua does not say its {part}"
    declared = re.findall(r"^local function (\w+)", text, re.MULTILINE)
    assert len(declared) == len(set(declared))


def test_a_cluster_is_told_of_a_script_by_its_own_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by its name: what is renamed, or copied, takes it along."""
    told = {name: scripts.load(name).flags for name in scripts.names()}
    assert {name for name, flags in told.items() if "one-key" in flags} == {"lease_release", "lease_renew"}
    assert all(scripts.in_cluster(scripts.load(name)).flags == flags for name, flags in told.items())
    monkeypatch.setattr(scripts, "_read", lambda path: (FOLDER / "lease_renew.lua").read_text().split("--#")[0])
    assert scripts.load.__wrapped__("another_name").one_key
    monkeypatch.setattr(scripts, "_read", lambda path: "-- Flags: one-key, hasty\n")
    with pytest.raises(BadInputError, match="no flag 'hasty'"):
        scripts.load.__wrapped__("another_name")


def test_what_was_loaded_stays_through_an_upgrade(tmp_path: Path) -> None:
    folder = tmp_path / "emq_ops_lua"
    shutil.copytree(FOLDER, folder)
    code = (
        "from pathlib import Path; from emq_ops.protocol import scripts; scripts.load_all()\n"
        f"for path in Path({str(folder)!r}).glob('**/*.lua'): path.write_text('-- of another version')\n"
        "print([name for name in scripts.names() if b'another version' in scripts.load(name).source])"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert (folder / "claim.lua").read_text() == "-- of another version"


def test_time_is_read_in_one_place() -> None:
    found = [p.name for p in FOLDER.rglob("*.lua") if "'TIME'" in p.read_text()]
    assert found == ["check.lua"]


def test_an_unknown_script_is_one_clear_error() -> None:
    with pytest.raises(BadInputError, match="no script"):
        scripts.load("nothing_like_it")


@pytest.mark.parametrize(
    "module", ["emq_ops.protocol", "emq_ops.protocol.server", "emq_ops.protocol.transitions.claims"]
)
def test_the_protocol_pulls_in_nothing_heavy(module: str, tmp_path: Path) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"
