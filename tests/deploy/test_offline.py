"""`plan --offline`: the file alone. No variable is read, nobody is asked, nothing is made."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.server import Server
from tests.support.cli import Ran
from tests.support.collector import Collector
from tests.support.daemons import Site
from tests.support.valkey import Valkey

NAMES = ("TOKEN", "SECONDS", "PG", "KEY", "KEEP", "SWITCH", "PAUSED", "EVERY", "WORK", "GROUP", "ALERT")
TEXT = """\
server: {{url: "redis://127.0.0.1:{port}", password: "${{TOKEN}}", timeout: "${{SECONDS}}"}}
state: {{url: "postgresql://u:${{PG}}@127.0.0.1:{port}/d", group: "${{GROUP}}"}}
archive:
  local: "postgresql://u:${{PG}}@127.0.0.1:{port}/d"
  remote:
    {{url: "s3://b/p", endpoint: "http://127.0.0.1:{port}", access_key_id: "${{KEY}}", secret_access_key: "${{KEY}}"}}
alerts: [{{url: "${{ALERT}}"}}]
queues:
  orders:
    dead: {{every: 1m, keep: "${{KEEP}}", archive: "${{SWITCH}}"}}
    settings:
      paused: "${{PAUSED}}"
      rate: 5
      repeatables: {{nightly: {{every: "${{EVERY}}", template: "${{WORK}}"}}}}
  "mail-*": {{stalled: {{every: 5s}}}}
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def made_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_nobody_is_asked_and_no_variable_is_read(tmp_path: Path, collector: Collector) -> None:
    here = Site(tmp_path / "s", TEXT.format(port=collector.port))
    (here.folder / "over.yaml").write_text('queues: {orders: {settings: {rate: "${KEY}"}}}\n')

    def shown(*words: str) -> Ran:
        return here.run("-c", str(here.folder / "over.yaml"), "plan", "--offline", *words, code=2)

    unset = shown()
    here.env = dict.fromkeys(NAMES, "v-3c1f that no field takes")
    assert shown() == unset  # not one of them made a difference
    for line in ("keep: ${KEEP}", "false -> ${PAUSED}", "unset -> ${KEY}", "password: ${TOKEN}", '"every": "${EVERY}"'):
        assert line in unset.out
    assert "+ mail-*/stalled" in unset.out
    assert "for each queue that it takes" in unset.out
    assert "lost" not in unset.out  # what a reference guards is not judged
    (told,) = unset.err.splitlines()
    assert "everything is shown as new, since the state has a reference in its URL" in told
    assert (
        "no reference was resolved, and no server or store was asked; what differs there (drift) is not in it" in told
    )
    table = shown("--markdown")
    assert "| `+` | orders/paused | false -&gt; ${PAUSED} |" in table.out
    made = shown("--output", "json").json
    assert made["base_revision"] is None
    assert {"name": "keep", "before": None, "after": "${KEEP}"} in made["steps"][0]["fields"]
    assert collector.connections == 0
    assert made_in(here.folder) == ["config.yaml", "over.yaml"]


@pytest.mark.parametrize("words", [("--save", "p"), ("--revert", "all")])
def test_it_is_no_plan_to_apply(tmp_path: Path, words: tuple[str, str]) -> None:
    here = Site(tmp_path / "s", "queues: {orders: {}}\n")
    refused = here.run("plan", "--offline", *words, code=4)
    assert refused.out == ""
    assert f"{words[0]} with --offline" in refused.err
    assert made_in(here.folder) == ["config.yaml"]


def test_a_revision_in_a_file_of_this_host_is_compared_with_and_only_read(
    tmp_path: Path, server: Server, valkey: Valkey, collector: Collector
) -> None:
    applied = (
        f'server: {{url: "{valkey.url}"}}\nqueues: {{orders: {{settings: {{concurrency: 5, rate: "${{RATE}}"}}}}}}\n'
    )
    here = Site(tmp_path / "s", applied, {"RATE": "7"})
    here.run("apply", "--yes")
    here.env.clear()
    there = f"redis://127.0.0.1:{collector.port}"
    here.write(applied.replace(valkey.url, there).replace("concurrency: 5", "concurrency: 6"))
    state = here.folder / ".emq" / "state.db"
    with open_ledger(f"sqlite:///{state}"):  # somebody has it open
        assert "compared with revision 1" in here.run("plan", "--offline", code=2).err
    state.chmod(0o644)
    before, names = state.read_bytes(), made_in(here.folder)
    shown = here.run("plan", "--offline", code=2)
    assert "~ orders/concurrency\n    5 -> 6" in shown.out
    assert "rate" not in shown.out
    assert "compared with revision 1; no reference" in shown.err
    assert collector.connections == 0
    here.write(applied)
    assert here.run("plan", "--offline").out == "Nothing to do.\n"
    assert (state.read_bytes(), stat.S_IMODE(state.stat().st_mode), made_in(here.folder)) == (before, 0o644, names)


def test_what_stands_in_the_file_is_confined_all_the_same(tmp_path: Path, collector: Collector) -> None:
    here = Site(tmp_path / "s", TEXT.format(port=collector.port), {"EMQ_OPS_HOST_ALLOW": "*.ours.example"})
    said = here.run("plan", "--offline", code=4).err
    assert f"config.yaml:1:15: server.url: the host '127.0.0.1:{collector.port}' may not be asked" in said
    here.env = {"EMQ_OPS_HOST_ALLOW": "127.0.0.1", "EMQ_OPS_ENV_ALLOW": "EMQ_*"}
    assert "the environment variable TOKEN may not be read here" in here.run("plan", "--offline", code=4).err
    here.env = {"EMQ_OPS_HOST_ALLOW": "127.0.0.1"}
    here.run("plan", "--offline", code=2)
    here.write('server: {url: "redis://:${PW}@${HOST}:1"}\nstate: {url: "postgresql://${HOST}/d"}\nqueues: {a: {}}\n')
    here.run("plan", "--offline", code=None)
    assert collector.connections == 0


def test_a_state_of_the_branch_that_has_views_is_not_read(tmp_path: Path) -> None:
    """A view may have no end: here the file would be read for ever."""
    here = Site(tmp_path / "s", "queues: {orders: {}}\n")
    state = here.folder / ".emq" / "state.db"
    with open_ledger(f"sqlite:///{state}"):
        pass
    with contextlib.closing(sqlite3.connect(state)) as planted, planted:
        columns = [row[1] for row in planted.execute("PRAGMA table_info(revisions)")]
        planted.execute("DROP TABLE revisions")
        endless = ", ".join(f'(SELECT count(*) FROM r) AS "{name}"' for name in columns)
        planted.execute(
            f"CREATE VIEW revisions AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT {endless}"
        )
    assert "has views or triggers" in here.run("plan", "--offline", code=2).err
