"""A config from somebody else: what it may read of the environment, which hosts it may name, which files include."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.config.loader import load
from emq_ops.config.messenger import messenger_of, places_of
from emq_ops.policy.environment import Environment, hosts_of
from emq_ops.syntax.errors import SourceError
from tests.support.collector import Collector
from tests.support.daemons import Site, wait_for

TOKEN = "tok-3c1f"


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


HOSTILE = """\
server:
  url: redis://127.0.0.1:{port}
  password: ${{DEPLOY_TOKEN}}
  timeout: 1s
state: {{url: "sqlite:///state.db"}}
queues: {{orders: {{}}}}
"""


@pytest.mark.parametrize("verb", ["plan", "drift", "ps", "sweep orders", "apply --yes", "audit dead orders"])
def test_a_variable_that_is_not_allowed_is_never_sent(tmp_path: Path, collector: Collector, verb: str) -> None:
    env = {"DEPLOY_TOKEN": TOKEN, "EMQ_OPS_ENV_ALLOW": "EMQ_*, PGPASSWORD"}
    here = Site(tmp_path / "s", HOSTILE.format(port=collector.port), env)
    said = here.run(*verb.split(), code=4).err
    assert "config.yaml:3:13: server.password: the environment variable DEPLOY_TOKEN may not be read here" in said
    assert "--allow-env DEPLOY_TOKEN" in said
    assert "EMQ_OPS_ENV_ALLOW" in said
    assert collector.connections == 0
    if verb == "plan":
        here.run("plan", "--allow-env", "DEPLOY_*", code=None)
        wait_for(lambda: TOKEN.encode() in collector.got)


def test_allow_env_confines_by_itself_and_a_reference_in_a_number_too(tmp_path: Path) -> None:
    text = HOSTILE.format(port=1).replace("{}", "{dead: {keep: '${KEEP}'}}")
    here = Site(tmp_path / "s", text, {"DEPLOY_TOKEN": TOKEN, "KEEP": "7"})
    said = here.run("plan", "--allow-env", "DEPLOY_TOKEN", code=4).err
    assert "config.yaml:6:32: queues.orders.dead.keep: the environment variable KEEP may not be read here" in said


def test_hosts_that_are_not_allowed_are_not_asked(tmp_path: Path, collector: Collector) -> None:
    there = f"127.0.0.1:{collector.port}"
    env = {"DEPLOY_TOKEN": TOKEN, "EMQ_OPS_HOST_ALLOW": "*.ours.example,localhost"}
    here = Site(tmp_path / "s", HOSTILE.format(port=collector.port), env)
    said = here.run("plan", code=4).err
    assert f"config.yaml:2:8: server.url: the host '{there}' may not be asked" in said
    assert "EMQ_OPS_HOST_ALLOW" in said
    for state in (f"postgresql://u@{there}/d", f"postgresql:///d?host={there.split(':')[0]}&port={collector.port}"):
        assert "may not be asked" in here.run("history", "--state", state, code=4).err
    store = f"s3://b/p?endpoint=http://{there}"
    there_too = (
        "archive",
        "verify",
        "orders",
        "completions",
        "--remote",
        store,
        "--local",
        f"sqlite:///{tmp_path}/a.db",
    )
    assert "may not be asked" in here.run(*there_too, code=4).err
    assert (
        "'s3.amazonaws.com' may not be asked"
        in here.run(
            *(
                "archive",
                "verify",
                "orders",
                "completions",
                "--remote",
                "s3://b/p",
                "--local",
                f"sqlite:///{tmp_path}/a.db",
            ),
            code=4,
        ).err
    )
    assert collector.connections == 0
    here.env["EMQ_OPS_HOST_ALLOW"] = "127.0.0.1"
    here.run("plan", code=None)
    wait_for(lambda: collector.connections > 0)


def test_alerts_go_to_hosts_and_services_that_are_allowed(tmp_path: Path) -> None:
    text = "state: {url: 'sqlite:///state.db'}\nqueues: {orders: {}}\nalerts:\n  - url: "
    here = Site(tmp_path / "s", text + "json://hook.theirs.example/x\n", {"EMQ_OPS_HOST_ALLOW": "*.ours.example"})
    for verb in ("validate", "plan --offline", "plan", "apply --yes"):
        said = here.run(*verb.split(), code=4).err
        assert "config.yaml:4:10: alerts[0].url: nothing may be sent to 'hook.theirs.example'" in said, verb
    assert "EMQ_OPS_HOST_ALLOW" in said
    here.write(text + "'${ALERT}'\n")
    here.env["ALERT"] = "json://hook.theirs.example/x"
    here.run("validate")
    assert "alerts[0].url: nothing may be sent to" in here.run("apply", "--yes", code=4).err


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("jsons://H.example:9/x", ["h.example:9"]),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/", ["slack"]),
        ("ntfy://topic", ["ntfy"]),
        ("ntfys://h.example/topic", ["h.example", "ntfys"]),
    ],
)
def test_where_a_messenger_sends_to(url: str, places: list[str]) -> None:
    assert places_of(messenger_of(url), url) == places


def test_a_mail_server_beside_the_host_of_the_address_counts() -> None:
    url = "mailtos://u:p@ours.example?smtp=mx.theirs.example"
    assert "mx.theirs.example" in places_of(messenger_of(url), url)


def test_every_host_of_a_url_is_found() -> None:
    assert hosts_of("redis+sentinel://u:p@A:1,b:2/name") == ["a:1", "b:2"]
    several = hosts_of("postgresql://u:p%40@h1,h2:5/d?hostaddr=10.0.0.1&service=x")
    assert several == ["h1", "h2:5", "10.0.0.1", "service=x"]
    assert hosts_of("postgresql:///d?host=/var/run/postgresql") == hosts_of("unix:///run/v.sock") == []
    assert hosts_of("s3://bucket/p?endpoint=https://u@T3.example:9") == ["t3.example:9"]
    allowed = Environment({}, hosts=("h", "[::1]", "d:5432"))
    for url in ("redis://h:6379", "redis://H", "redis://[::1]:1", "postgresql://d:5432/x"):
        assert allowed.strange_host(url) is None, url
    odd = ("allowed:5432/@evil/d", "allowed:5432/d?x=@evil/d", "allowed#@evil/d", "allowed\\@evil/d", "allowed\t@evil")
    for url in (f"postgresql://{rest}" for rest in odd):
        assert Environment({}, hosts=("allowed",)).strange_host(url) is not None, url
    assert Environment({}, hosts=("allowed",)).strange_host("s3://b/p@q?endpoint=http://allowed%23@evil") is not None
    assert Environment({}, hosts=("allowed",)).strange_host("s3://b/p@q?endpoint=http://allowed:9") is None
    for url in ("redis://h.evil", "redis://d:5433", "redis://h,evil:1", "redis://u:h@evil", "rediss://evil#@h"):
        assert allowed.strange_host(url) is not None, url


def test_validate_resolves_nothing(tmp_path: Path) -> None:
    text = (
        "server: {url: '${WHERE}', timeout: '${HOW_LONG}'}\nstate: {url: '${WHERE}'}\nqueues:\n"
        "  orders: {dead: {every: '${NO}', keep: '${NO}'}, stalled: {every: '${NO}', jitter: 5s},\n"
        "    settings: {rate: '${NO}'}}\n"
    )
    env = dict.fromkeys(("WHERE", "HOW_LONG", "NO"), "what none of them takes")
    here = Site(tmp_path / "s", text, env)
    here.run("validate")
    here.env.clear()
    here.run("validate", "--allow-unset")
    assert here.run("validate", code=4).err.count("is not set") == 7
    here.env.update(env, EMQ_OPS_ENV_ALLOW="NO")
    assert "HOW_LONG may not be read" in here.run("validate", "--allow-unset", code=4).err


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "b.yaml").write_text("queues: {b: {}}\n")
    return folder


@pytest.mark.parametrize(
    "include", ["../outside/b.yaml", "{outside}/b.yaml", "../outside/*.yaml", "/**/b.yaml", "link.yaml"]
)
def test_includes_stay_below_the_file_unless_allowed(tmp_path: Path, outside: Path, include: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.yaml").symlink_to(outside / "b.yaml")
    file = inside / "a.yaml"
    file.write_text(f"include: ['{include.format(outside=outside)}']\n")
    with pytest.raises(SourceError, match=r"a\.yaml:1:11: include: .* is not below .*inside.*--allow-include"):
        load([file], {})
    if "**" not in include:
        assert load([file], {}, include=[outside]).config.queues.keys() == {"b"}


def test_a_mounted_file_that_is_a_link_includes_its_neighbours(tmp_path: Path) -> None:
    data = tmp_path / "mount" / "..2026"
    data.mkdir(parents=True)
    for name, text in (("a.yaml", "include: b.yaml\n"), ("b.yaml", "queues: {b: {}}\n")):
        (data / name).write_text(text)
        (tmp_path / "mount" / name).symlink_to(f"..2026/{name}")
    assert load([tmp_path / "mount" / "a.yaml"], {}).config.queues.keys() == {"b"}


def test_includes_are_mappings_and_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("include: b.yaml\nqueues: {orders: {}}\n")
    for said in ("- 1\n", "word\n"):
        (tmp_path / "b.yaml").write_text(said)
        with pytest.raises(SourceError, match=r"a\.yaml:1:10: include: .*b\.yaml is no mapping"):
            load([tmp_path / "a.yaml"], {})
    (tmp_path / "b.yaml").write_text("note: x\n" + "#" * (3 << 20))
    (tmp_path / "a.yaml").write_text("include: [b.yaml, b.yaml, b.yaml, b.yaml, b.yaml, b.yaml]\n")
    with pytest.raises(SourceError, match="more than 16,777,216 bytes"):
        load([tmp_path / "a.yaml"], {})


def test_the_environment_shows_nothing_of_itself() -> None:
    assert TOKEN not in repr(Environment.of({**os.environ, "T": TOKEN}))
