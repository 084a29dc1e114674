"""Contexts: names for servers and configs, and the target's name before anything goes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.cli import emq
from tests.support.passing import add, kill_row
from tests.support.terminal import at_terminal
from tests.support.valkey import Valkey

CONFIG = """\
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
queues: {{orders: {{dead: {{every: 10m, keep: 5}}}}}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts, in an empty folder; where the contexts are kept."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("EMQ_CONTEXT", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "config/emq-ops/contexts.yaml"


@pytest.fixture
def prod(home: Path, tmp_path: Path, server: Server, valkey: Valkey) -> Path:
    """The config of a production context that was applied."""
    file = tmp_path / "prod.yaml"
    file.write_text(CONFIG.format(url=valkey.url))
    assert emq("-c", str(file), "context", "add", "prod", "--production").code == 0
    assert emq("--context", "prod", "apply", "--yes", "--allow-loss", "--confirm", "prod").code == 0
    return file


def test_a_context_is_kept_for_its_user_alone(home: Path, valkey: Valkey) -> None:
    url = "redis://ops:${STAGING_PW}@10.0.0.5/3"
    added = emq("--url", url, "--state", "sqlite:///s.db", "context", "add", "staging")
    assert (added.code, str(home) in added.err) == (0, True)
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700
    [row] = emq("context", "ls", "--output", "json").json
    assert row["url"] == url
    assert row["state"] == f"sqlite:///{Path.cwd()}/s.db"
    assert emq("context", "rm", "staging").code == 0
    assert emq("context", "ls", "--output", "json").json == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://ops:hunter22@10.0.0.5", "redis://ops:${NAME}@10.0.0.5"),
        ("rediss://10.0.0.5?password=hunter22", "rediss://10.0.0.5?password=${NAME}"),
        ("redis://ops:${PW:-hunter22}@10.0.0.5", "write ${NAME}"),
    ],
)
def test_a_password_is_refused_with_what_to_write(home: Path, url: str, says: str) -> None:
    ran = emq("--url", url, "context", "add", "staging")
    assert (ran.code, says in ran.err, "hunter22" in ran.err, home.exists()) == (4, True, False, False)


def test_which_context_holds(home: Path, prod: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CONFIG.format(url="redis://127.0.0.1:1").replace("{orders", "{more: {}, orders"))
    assert emq("-c", str(other), "context", "add", "other").code == 0

    def shown(*argv: str) -> str:
        ran = emq(*argv, "validate")
        return "others" if "2 queues" in ran.out + ran.err else "orders" if ran.code == 0 else ran.err

    assert shown("--context", "other") == "others"
    assert emq("context", "use", "other").code == 0
    Path("config.yaml").write_text(prod.read_text())
    assert shown() == "others"  # the one in use holds over the file that lies here, and says so
    assert "config.yaml here is not read" in emq("validate").err
    assert shown("--context", "-") == "orders"
    assert shown("-c", str(prod)) == "orders"
    monkeypatch.setenv("EMQ_CONTEXT", "prod")
    assert shown() == "orders"
    assert shown("--context", "other") == "others"
    assert shown("-c", str(other)) == "others"
    monkeypatch.setenv("EMQ_CONTEXT", "prdo")
    missing = emq("validate")
    assert (missing.code, "did you mean 'prod'?" in missing.err) == (4, True)
    both = emq("--context", "prod", "-c", str(other), "plan")
    assert (both.code, "one way" in both.err) == (4, True)
    assert emq("context", "use", "othr").code == 4
    assert emq("context", "rm", "othr").code == 4


def test_a_damaged_file_is_one_line(home: Path) -> None:
    home.parent.mkdir(parents=True)
    home.write_text("contexts: {prod: {prodution: true}}\n")
    ran = emq("context", "ls")
    assert (ran.code, "line 1" in ran.err or ":1:" in ran.err, "production" in ran.err) == (4, True, True)
    assert len(ran.err.splitlines()) == 1


def test_production_takes_its_name(prod: Path, server: Server) -> None:
    """However the target is named: by the context, or by the file that the context means."""
    for place in (("--context", "prod"), ("-c", str(prod))):
        bare = emq(*place, "destroy", "--yes")
        assert (bare.code, "--confirm prod" in bare.err) == (4, True)
        wrong = emq(*place, "destroy", "--yes", "--confirm", "staging")
        assert (wrong.code, "not on staging" in wrong.err) == (4, True)
        asked = at_terminal(*place, "destroy", typed="prd\n")
        assert (asked.code, "\x1b[1;31mprod\x1b[0m" in asked.err, "nothing was changed" in asked.err) == (1, True, True)
        trimmed = emq(*place, "trim", "orders")  # asks nowhere else
        assert (trimmed.code, "--confirm prod" in trimmed.err) == (4, True)
    assert emq("--context", "prod", "trim", "orders", "--confirm", "prod").code == 0
    prod.write_text(prod.read_text().replace("keep: 5}", "keep: 3}"))
    for argv in (("up", "--once", "--apply", "--allow-loss"), ("up", "--once", "--watch")):
        bare = emq("--context", "prod", *argv)
        assert (bare.code, "--confirm prod" in bare.err) == (4, True), (argv, bare.err)
    prod.write_text(prod.read_text().replace("keep: 3}", "keep: 5}"))
    [job] = add(Queue(server, "orders"), 1)
    bare = emq("--context", "prod", "worker", "cancel", job, "--queue", "orders")
    assert (bare.code, "--confirm prod" in bare.err) == (4, True)
    assert emq("--context", "prod", "drift").code == 0  # it was not taken away
    typed = at_terminal("--context", "prod", "destroy", typed="prod\n")
    assert (typed.code, "revision 2 is in force" in typed.err) == (0, True)


@pytest.mark.usefixtures("home", "server")
def test_every_prompt_names_its_target(valkey: Valkey, tmp_path: Path) -> None:
    file = tmp_path / "dev.yaml"
    file.write_text(CONFIG.format(url=valkey.url))
    assert valkey.url in at_terminal("-c", str(file), "apply", "--allow-loss", typed="n\n").err
    assert emq("-c", str(file), "context", "add", "dev").code == 0
    asked = at_terminal("--context", "dev", "apply", "--allow-loss", typed="y\n")
    assert (asked.code, "[dev] Apply this?" in asked.err) == (0, True)


def test_a_removal_of_dead_jobs_on_production(prod: Path, server: Server) -> None:
    [job] = kill_row(Queue(server, "orders"), 1)
    selected = ("--context", "prod", "audit", "dead", "orders", "--remove", "--yes")
    bare = emq(*selected)
    assert (bare.code, "--confirm prod" in bare.err) == (4, True)
    assert emq("--context", "prod", "audit", "dead", "orders", "--list", "--output", "json").json[0]["job"] == job
    assert emq(*selected, "--confirm", "prod").code == 0
