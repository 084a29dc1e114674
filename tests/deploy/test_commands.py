"""The commands: exit codes, what stands on stdout and on stderr, secrets nowhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control, reads
from tests.support.cli import Ran, emq
from tests.support.valkey import Valkey

SECRET = "p$4:x # y${HOME}"
CONFIG = """\
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{}}
queues:
  orders:
    stalled: {{every: 30s, max_stalled: 3}}
    settings: {{paused: false, concurrency: 50}}
"""


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, server: Server, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command line in a folder with a config.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG.format(url=valkey.url))
    return emq


def edit(old: str, new: str) -> None:
    file = Path("config.yaml")
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_the_way_of_a_change(run: Run, server: Server) -> None:
    shown = run("plan")
    assert shown.code == 2
    assert "+ orders/stalled" in shown.out
    assert run("apply").code == 4  # nobody to ask
    done = run("apply", "--yes", "--why", "first")
    assert (done.code, done.err.splitlines()[-1]) == (0, "emq-ops: revision 1 is in force")
    assert reads.concurrency(Queue(server, "orders")) == 50
    assert run("plan").code == 0
    again = run("apply", "--yes")
    assert (again.code, again.out, again.err) == (0, "Nothing to do.\n", "")

    edit("max_stalled: 3", "max_stalled: 4")
    changed = run("plan", "--output", "json")
    assert changed.code == 2
    [step] = changed.json["steps"]
    assert (step["sign"], step["address"]) == ("~", "orders/stalled")
    assert step["fields"] == [{"name": "max_stalled", "before": 3, "after": 4}]
    assert run("apply", "--dry-run").code == 2
    applied = run("apply", "--yes", "--output", "json")
    assert (applied.code, applied.json["revision"]) == (0, 2)

    heads = run("history", "--output", "json").json
    assert [(h["revision"], h["kind"], h["why"]) for h in heads] == [(2, "apply", ""), (1, "apply", "first")]
    assert "~     orders/stalled" in run("show", "2").out
    assert run("show", "1", "--output", "json").json["document"]["queues"]["orders"]["stalled"]["max_stalled"] == 3
    assert "max_stalled: 4" in run("show", "2", "--yaml").out
    assert run("show", "9").code == 4

    assert run("rollback", "1", "--yes").code == 0
    assert run("plan").code == 2
    assert run("destroy", "nothing-*", "--yes").code == 4
    assert run("destroy", "--yes").code == 0
    assert reads.concurrency(Queue(server, "orders")) == 50
    assert [h["kind"] for h in run("history", "--output", "json").json] == ["destroy", "rollback", "apply", "apply"]


def test_drift(run: Run, server: Server) -> None:
    assert run("drift").err == "emq-ops: nothing was applied yet\n"
    run("apply", "--yes")
    assert run("drift").code == 0
    control.pause_queue(Queue(server, "orders"))
    found = run("drift", "--output", "json")
    assert found.code == 2
    expected = {"address": "orders/paused", "queue": "orders", "setting": "paused", "applied": False, "live": True}
    assert found.json == [expected]
    shown = run("plan")
    assert shown.code == 2
    assert "! orders/paused: applied false, on the server true" in shown.out
    assert run("apply", "--yes").code == 0
    assert reads.is_paused(Queue(server, "orders"))
    assert run("apply", "--yes", "--revert", "orders/pausd").code == 4
    assert run("apply", "--yes", "--revert", "orders/paused").code == 0
    assert not reads.is_paused(Queue(server, "orders"))
    assert run("plan").code == 0


def test_the_revision_says_which_server_where_the_file_is_gone(run: Run, server: Server, tmp_path: Path) -> None:
    run("apply", "--yes")
    Path("config.yaml").unlink()
    control.pause_queue(Queue(server, "orders"))
    state = f"sqlite:///{tmp_path}/state.db"
    assert run("drift", "--state", state).code == 2
    assert run("rollback", "1", "--yes", "--state", state).code == 0
    assert run("plan", "--state", state).code == 4


def test_a_saved_plan_and_the_first_trim_after_it(run: Run, server: Server) -> None:
    def die(count: int) -> list[str]:
        jobs = [ids.mint() for _ in range(count)]
        for job in jobs:
            server.write("HSET", keys_of("orders").row(job), "state", "dead", "attempts", "1", "payload", "x")
            server.write("ZADD", keys_of("orders").dead, 0, job)
        return jobs

    first = die(20)
    edit("    settings:", "    dead: {keep: 5, archive: false}\n    settings:")
    saved = run("plan", "--save", "plan.json")
    assert saved.code == 2
    assert "20 dead now, 15 would go" in saved.out
    assert "takes --allow-loss" in saved.out
    refused = run("apply", "plan.json")
    assert refused.code == 1
    assert "data could be lost: orders/dead: keep 5 is new" in refused.err
    assert run("apply", "plan.json", "--allow-loss").code == 0
    assert run("apply", "--plan", "plan.json", "--allow-loss").code == 1

    # Ten more die, and are older by their ids than nobody: the first trim takes none but the fifteen that were listed.
    die(10)
    trimmed = run("trim", "orders", "--output", "json")
    assert trimmed.code == 0, trimmed.err
    assert (trimmed.json["removed"], trimmed.json["left"]) == (15, 15)
    assert set(trimmed.json["removed_jobs"]) == set(first[:15])
    assert run("trim", "orders", "--output", "json").json["removed"] == 10


def test_c19_no_secret_in_plan_state_or_words(
    run: Run, server: Server, valkey: Valkey, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with valkey.client() as admin:
        admin.execute_command("ACL", "SETUSER", "c19", "on", f">{SECRET}", "~*", "&*", "+@all")
    monkeypatch.setenv("P", SECRET)
    edit(f'url: "{valkey.url}"', f'url: "{valkey.url}", username: c19, password: "${{P}}"')
    texts = []
    for argv in (["plan"], ["plan", "--output", "json", "--save", "p.json"], ["apply", "p.json"], ["show", "1"]):
        ran = run(*argv)
        assert ran.code in (0, 2), ran.err
        texts += [ran.out, ran.err]
    texts += [Path("p.json").read_text(), run("show", "1", "--output", "json").out, run("history").out]
    assert not any("p$4:x" in text for text in texts)
    assert "${P}" in run("show", "1", "--output", "json").out
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"p$4:x" not in file.read_bytes(), file
    monkeypatch.delenv("P")
    with valkey.client() as admin:
        before = admin.info("stats")["total_connections_received"]
    ran = run("plan")
    line = "config.yaml:1:\\d+: server.password: the environment variable P is not set"
    assert ran.code == 4
    assert re.search(line, ran.err)
    with valkey.client() as admin:
        assert admin.info("stats")["total_connections_received"] == before + 1  # this one
        admin.execute_command("ACL", "DELUSER", "c19")


def test_validate_lists_every_fault(run: Run) -> None:
    assert run("validate").code == 0
    edit("every: 30s", "every: 30")
    edit("paused: false", "paused: no")
    found = run("validate")
    assert (found.code, found.out) == (4, "")
    assert [line.split(" ")[1] for line in found.err.splitlines()] == ["config.yaml:6:22:", "config.yaml:7:24:"]
    assert run("plan").code == 4


def test_config_show(run: Run) -> None:
    ran = run("config", "show", "orders", "--output", "json")
    values = {v["path"]: (v["value"], v["from"]) for v in ran.json["values"]}
    assert values["stalled.max_stalled"] == (3, "config.yaml:6")
    assert values["stalled.limit"] == (100, "built-in default")
    assert run("config", "show", "a{b").code == 4


def test_schema_is_a_schema(run: Run) -> None:
    schema = run("schema").json
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert set(schema["properties"]) >= {"server", "state", "archive", "defaults", "queues", "maintenance"}


def test_the_file_at_the_top_is_valid_and_follows_the_schema(run: Run) -> None:
    top = Path(__file__).parents[2] / "config.yaml"
    assert run("validate", "-c", str(top)).code == 0
    import jsonschema
    from ruamel.yaml import YAML

    jsonschema.validate(YAML(typ="safe", pure=True).load(top.read_text()), run("schema").json)


def test_unreachable_is_3(run: Run, valkey: Valkey) -> None:
    edit(valkey.url, "unix:///nowhere/s")
    assert run("plan").code == 3
    edit("sqlite:///state.db", "postgresql:///x?host=/nowhere")
    assert run("history").code == 3


def test_no_config_is_4(run: Run) -> None:
    Path("config.yaml").unlink()
    for argv in (["plan"], ["apply", "--yes"], ["validate"], ["config", "show", "q"]):
        ran = run(*argv)
        assert ran.code == 4
        assert "no config file" in ran.err


def test_a_fault_elsewhere_in_the_file_stops_no_look_at_the_state(run: Run) -> None:
    run("apply", "--yes")
    edit("every: 30s", 'every: "${NOWHERE}"')
    assert "NOWHERE" in run("plan").err
    for argv in (["history"], ["show", "1"], ["state", "status"], ["state", "unlock"], ["state", "backup", "b.db"]):
        assert run(*argv).code == 0, argv
    edit("sqlite:///state.db", "${NOWHERE}")
    ran = run("history")
    assert (ran.code, "NOWHERE" in ran.err) == (4, True)


def test_import_command(run: Run, server: Server, valkey: Valkey) -> None:
    control.set_concurrency(Queue(server, "orders"), 12)
    ran = run("import", "--url", valkey.url)
    assert ran.code == 0
    assert "concurrency: 12" in ran.out
    assert run("import", "--out", "new.yaml").code == 0
    assert run("validate", "-c", "new.yaml").code == 0
    assert run("import", "--out", "new.yaml").code == 4


def test_what_was_imported_is_no_change_and_names_state_and_archive(
    run: Run, server: Server, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = Queue(server, "orders")
    control.set_concurrency(q, 12)
    control.pause_queue(q)
    server.write("XADD", q.keys.stream("completions"), "*", "id", "x")
    monkeypatch.setenv("STATE", "sqlite:///state.db")
    monkeypatch.setenv("KEY", "hunter2")
    Path("config.yaml").write_text(
        f"server: {{url: '{valkey.url}'}}\nstate: {{url: '${{STATE}}'}}\n"
        "archive: {remote: {url: 'file:bucket'}, sign: '${KEY}'}\nqueues: {}\n"
    )
    assert run("import", "--out", "new.yaml").code == 0
    written = Path("new.yaml").read_text()
    assert "url: ${STATE}" in written
    assert "sign: ${KEY}" in written
    assert "hunter2" not in written
    shown = run("plan", "-c", "new.yaml")
    assert shown.code == 0, shown
    assert shown.out.endswith("Nothing changes: 2 settings are so already; with the next apply they are managed.\n")
    assert run("apply", "--yes", "-c", "new.yaml").code == 0
    assert run("plan", "-c", "new.yaml").out == "Nothing to do.\n"
    assert "belong" not in run("import", "-c", "new.yaml").err
    told = run("import", "--url", valkey.url, "--state", "sqlite:///other.db")
    assert "emq-ops: orders belong to state " in told.err
    assert "state take-over" in told.err
    assert not Path("other.db").exists()


def test_state_commands(run: Run, tmp_path: Path) -> None:
    run("apply", "--yes")
    status = run("state", "status", "--output", "json").json
    assert (status["revision"], status["lock_held"]) == (1, False)
    assert run("state", "unlock").err == "emq-ops: the lock was free\n"
    assert run("state", "export", "s.jsonl").code == 0
    assert run("state", "backup", "s.db").code == 0
    moved = run("state", "import", "s.jsonl", "--state", f"sqlite:///{tmp_path}/new.db", "--output", "json")
    assert (moved.code, moved.json["state"]) == (0, status["state"])
    assert run("state", "import", "s.jsonl", "--state", f"sqlite:///{tmp_path}/new.db").code == 1
    assert run("history", "--state", f"sqlite:///{tmp_path}/s.db", "--output", "json").json[0]["revision"] == 1


def test_export_beside_a_daemon_is_refused(run: Run, server: Server) -> None:
    run("apply", "--yes")
    state = run("state", "status", "--output", "json").json["state"]
    now = server.now_ms("orders")
    lease = {"state": state, "token": 1, "until": now + 60_000, "ms": 60_000, "role": "daemon", "host": "b", "pid": 7}
    server.write("HSET", keys_of("orders").lease, *[x for pair in lease.items() for x in pair])
    refused = run("state", "export", "s.jsonl")
    assert refused.code == 1
    assert "the daemon b:7 leads orders" in refused.err
    assert run("state", "export", "s.jsonl", "--force").code == 0


def test_markdown_for_a_pull_request(run: Run) -> None:
    assert run("plan", "--markdown").out.startswith("### emq-ops plan: 3 to add")
