"""Every recorded transition agrees; a disagreement is found and shown; the command keeps its contract."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol.conformance.replay import Vector, read_vectors, replay, replay_all
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server
from tests.support.keyspace import recorded
from tests.support.valkey import Valkey

FILE = recorded("transitions.json")
VECTORS = read_vectors(FILE)


def test_every_recorded_transition_agrees(server: Server) -> None:
    disagreeing = {v.vector: v.lines for v in replay_all(server, VECTORS) if not v.agrees}
    assert disagreeing == {}
    assert len(VECTORS) >= 368
    assert list(server.scan()) == []


@pytest.mark.parametrize("vector", read_vectors(recorded("kept_back.json")), ids=lambda vector: vector.name)
def test_kinds_that_no_recording_of_ours_holds(server: Server, vector: Vector) -> None:
    assert replay(server, vector).lines == []


def test_a_wrong_reply_and_a_wrong_keyspace_are_shown(server: Server) -> None:
    original = json.loads(FILE.read_bytes())["vectors"]
    sweep = next(v for v in original if v["op"] == "sweep_stalled" and v["reply"][1])
    wrong = copy.deepcopy(sweep)
    wrong["reply"][1] = []
    wrong["then"]["emq:{orders}:extra"] = {"string": "x"}
    wrong["then"]["emq:{orders}:metrics:failed"]["hash"]["count"] = "99"
    path = Path(str(FILE))
    vector = next(v for v in read_vectors(path) if v.name == sweep["name"])
    changed = type(vector)(**wrong)
    lines = replay(server, changed).lines
    assert any(line.startswith("- reply") for line in lines)
    assert any(line.startswith("- emq:{orders}:extra") for line in lines)
    assert "- emq:{orders}:metrics:failed count = 99" in lines


def _write(tmp_path: Path, document: object) -> str:
    path = tmp_path / "v.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_command_on_a_server_of_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    some = json.loads(FILE.read_bytes())
    some["vectors"] = some["vectors"][::40]
    assert main(["conformance", _write(tmp_path, some)]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == f"{len(some['vectors'])} of {len(some['vectors'])} transitions agree"
    )


def test_command_says_what_disagrees(
    server: Server, valkey: Valkey, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    some = json.loads(FILE.read_bytes())
    some["vectors"] = [v for v in some["vectors"] if v["op"] == "claim_lane" and v["reply"]][:2]
    some["vectors"][0]["reply"][2] += 1
    assert main(["conformance", _write(tmp_path, some), "--url", valkey.url]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 of 2 transitions agree"
    assert lines[0] == some["vectors"][0]["name"]
    assert lines[1].startswith("  - reply")


def test_command_refuses_a_server_that_holds_keys(
    server: Server, valkey: Valkey, capsys: pytest.CaptureFixture[str]
) -> None:
    server.write("SET", "mine", "1")
    assert main(["--url", valkey.url, "conformance", str(FILE)]) == 4
    assert "mine" in capsys.readouterr().err
    assert server.read("GET", "mine") == b"1"


UNKNOWN_OP = {"name": "x", "op": "fly", "queue": "q", "given": {}, "args": {}, "reply": 1, "then": {}}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "[]",
        {"format": 2, "vectors": []},
        {"format": 1},
        {"format": 1, "vectors": [{"name": "x"}]},
        {"format": 1, "vectors": [UNKNOWN_OP]},
    ],
)
def test_a_file_that_is_none_is_refused(document: object, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        read_vectors(Path(_write(tmp_path, document)))
    assert "v.json" in str(refused.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "emq_ops.cli.main", "conformance", str(tmp_path / "no")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "no" in done.stderr
