"""What commands write as JSON is what their versioned schemas say, no field more and none less."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from emq_ops.cli.output_schemas import OUTPUTS
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control, groups, streams
from tests.support.cli import emq
from tests.support.passing import kill_row
from tests.support.valkey import Valkey

MORE = {"config show": ("orders",), "runs ls": ("--idle",)}
STREAM = ("orders", "audit")
MORE |= {"stream ls": ("orders",), "stream read": STREAM, "stream groups": STREAM}
"""What a command needs beside its noun."""
EXITS = {"plan": 2, "drift": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture
def lived_in(folder: Path, server: Server, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a config that was applied and ran, and a setting that somebody moved; a context."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    kill_row(Queue(server, "orders"), 2)
    Path("config.yaml").write_text(
        f'server: {{url: "{valkey.url}"}}\nstate: {{url: "sqlite:///state.db"}}\n'
        "queues: {orders: {stalled: {every: 30s}, settings: {concurrency: 5}}, mail: {stalled: {}}}\n"
    )
    if not Path("state.db").exists():
        assert emq("apply", "--yes").code == 0
        assert emq("up", "--once").code == 0
        assert emq("-c", "config.yaml", "context", "add", "prod", "--production").code == 0
    streams.append(Queue(server, "orders"), "audit", [("who", "ada")])
    groups.create(Queue(server, "orders"), "audit", "billing", "0")
    control.set_concurrency(Queue(server, "orders"), 9)


@pytest.mark.usefixtures("lived_in")
@pytest.mark.parametrize("noun", sorted(OUTPUTS))
def test_an_output_is_as_its_schema_says(noun: str) -> None:
    schema = emq("schema", "output", *noun.split()).json
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["version"] >= 1
    ran = emq(*noun.split(), *MORE.get(noun, ()), "--output", "json")
    assert ran.code == EXITS.get(noun, 0), ran.err
    assert ran.json  # a list without rows would prove nothing
    jsonschema.validate(ran.json, schema)


def test_all_of_them_and_none() -> None:
    assert set(emq("schema", "output").json) == set(OUTPUTS)
    missing = emq("schema", "output", "run", "ls")
    assert (missing.code, "did you mean 'runs ls'?" in missing.err) == (4, True)
    assert emq("schema", "outputs").code == 4
    assert emq("schema").json["title"] == "emq-ops config"
