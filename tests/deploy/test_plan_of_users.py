"""A plan as its users expect it: equal queues drawn once, some queues alone, renames, rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.deploy.render import text
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control
from emq_ops.syntax.errors import SourceError
from tests.deploy.conftest import Desk
from tests.support.cli import emq
from tests.support.passing import kill_row
from tests.support.valkey import Valkey

MAIL = "stalled: {every: 30s}, settings: {concurrency: 5}"


def test_equal_queues_are_drawn_once(light_desk: Desk) -> None:
    names = ["mail-at", "mail-de", "mail-eu", "mail-fr", "mail-uk", "mail-us"]
    config = "queues:\n" + "".join(f"  {name}: {{{MAIL}}}\n" for name in names) + "  other: {stalled: {every: 5s}}\n"
    plan = light_desk.propose(config).plan
    lines = text(plan).splitlines()
    assert "+ 5 queues like mail-at (mail-de, mail-eu, mail-fr ...)" in lines
    assert [line for line in lines if line.startswith("+ ")] == [
        "+ mail-at/stalled", "+ mail-at/concurrency", "+ 5 queues like mail-at (mail-de, mail-eu, mail-fr ...)",
        "+ other/stalled",
    ]  # fmt: skip
    assert lines[-1] == "13 to add, 0 to change, 0 to remove."
    assert {f"+ {name}/stalled" for name in names} <= set(text(plan, unfolded=True).splitlines())


def test_a_plan_says_durations_as_the_file_does(
    valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = "{stalled: {every: 90s}, dead: {every: 24h, keep: 3, archive: false}}"
    Path("config.yaml").write_text(f"server: {{url: '{valkey.url}'}}\nqueues: {{orders: {entry}, other: {entry}}}\n")
    told = emq("plan").out
    assert "every: 24h" in told, told
    assert "every: 90s" in told
    assert "1d" not in told
    steps = {step["address"]: step["fields"] for step in emq("plan", "--output", "json").json["steps"]}
    assert {field["name"]: field["after"] for field in steps["orders/dead"]}["every"] == "1d"


def test_a_revision_shows_equal_queues_once(valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"mail-{n}" for n in range(6)]
    entries = "".join(f"  {name}: {{{MAIL}}}\n" for name in names)
    Path("config.yaml").write_text(f"server: {{url: '{valkey.url}'}}\nqueues:\n{entries}  other: {{protect: true}}\n")
    assert emq("apply", "--yes").code == 0
    told = emq("show", "1", "--wide").out
    assert "5 queues like mail-0 (mail-1, mail-2, mail-3 ...)" in told
    assert [name for name in names if f"{name}/stalled" in told] == ["mail-0"]
    assert {name for name in names if f"{name}/stalled" in emq("show", "1", "-v").out} == set(names)


def test_a_queue_that_differs_in_its_victims_is_drawn(light_desk: Desk, server: Server) -> None:
    kill_row(Queue(server, "b"), 1)
    policy = "dead: {keep: 0, archive: false}"
    shown = text(light_desk.propose(f"queues: {{a: {{{policy}}}, b: {{{policy}}}, c: {{{policy}}}}}\n").plan)
    assert "+ 1 queue like a (c)" in shown
    assert "1 dead now, 1 would go" in shown


def test_some_queues_alone(light_desk: Desk, server: Server) -> None:
    light_desk.apply("queues: {a: {stalled: {every: 30s}}, b: {stalled: {every: 30s}}}\n")
    control.set_concurrency(Queue(server, "b"), 9)
    queues = "queues: {a: {stalled: {every: 5s}}, b: {stalled: {every: 5s}}, mail-1: {stalled: {}}}\n"
    config = f"daemon: {{threads: 3}}\n{queues}"
    loaded = light_desk.config(config)
    session = light_desk.session
    proposal = session.propose(loaded, target=("a", "mail-*"))
    assert [step.address for step in proposal.plan.steps] == ["a/stalled", "mail-1/stalled"]
    session.apply(proposal)
    left = session.propose(loaded).plan
    assert [step.address for step in left.steps] == ["b/stalled", "daemon"]
    with pytest.raises(BadInputError, match="did you mean 'mail-1'"):
        session.propose(loaded, target=("mial-1",))


def test_a_saved_plan_of_some_queues(light_desk: Desk, tmp_path: Path) -> None:
    loaded = light_desk.config("queues: {a: {stalled: {every: 5s}}, b: {stalled: {every: 5s}}}\n")
    session = light_desk.session
    session.save(session.propose(loaded, target=("b",)), tmp_path / "plan.json")
    session.apply(session.load(tmp_path / "plan.json", loaded))
    assert [step.queue for step in session.propose(loaded).plan.steps] == ["a"]


def test_drift_elsewhere_is_not_of_a_plan_of_some(light_desk: Desk, server: Server) -> None:
    config = "queues: {a: {settings: {concurrency: 5}}, b: {settings: {concurrency: 5}}}\n"
    light_desk.apply(config)
    control.set_concurrency(Queue(server, "b"), 9)
    loaded = light_desk.config(config)
    assert [d.queue for d in light_desk.session.propose(loaded).plan.drift] == ["b"]
    assert not light_desk.session.propose(loaded, target=("a",)).plan.changes


def test_a_renamed_entry_is_no_destroy_and_create(light_desk: Desk, server: Server) -> None:
    policies = "dead: {keep: 1, archive: false}, stalled: {every: 30s}, settings: {concurrency: 5}"
    light_desk.apply(f"queues: {{mail-eu: {{{policies}}}}}\n", allow_loss=True)
    kill_row(Queue(server, "mail-europe"), 2)
    config = f"moved: [{{from: mail-eu, to: mail-europe}}]\nqueues: {{mail-europe: {{{policies}}}}}\n"
    plan = light_desk.propose(config).plan
    assert [(step.op, step.address) for step in plan.steps] == [
        ("move", "mail-europe/stalled"), ("move", "mail-europe/dead"), ("create", "mail-europe/concurrency"),
    ]  # fmt: skip
    dead = plan.steps[1]
    # Another queue all the same: what its policy lets go there is told, and bounds the first trim.
    assert (dead.effect["dead"], len(dead.effect["ids"])) == (2, 1)
    assert "(moved from mail-eu)" in text(plan)
    light_desk.session.apply(light_desk.propose(config))
    assert server.read("HGET", keys_of("mail-europe").meta, "concurrency") == b"5"
    assert light_desk.propose(config).plan.empty  # the line may stand
    assert set(light_desk.session.current().document.queues) == {"mail-europe"}  # type: ignore[union-attr]


def test_a_renamed_glob(light_desk: Desk, server: Server) -> None:
    for name in ("mail-eu-1", "post-eu-1", "post-us-1"):
        kill_row(Queue(server, name), 1)
    light_desk.apply('queues: {"mail-*": {stalled: {every: 30s}}}\n')
    config = 'moved: [{from: "mail-*", to: "post-*"}]\nqueues: {"post-*": {stalled: {every: 30s}}}\n'
    steps = light_desk.propose(config).plan.steps
    told = [(step.op, step.address) for step in steps]
    assert told == [("move", "post-eu-1/stalled"), ("create", "post-us-1/stalled")]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("moved: [{from: a, to: b}]\nqueues: {a: {}, b: {}}\n", "a name that is no entry"),
        ("moved: [{from: a, to: orderz}]\nqueues: {orders: {}}\n", "did you mean 'orders'"),
        ('moved: [{from: "a-*", to: b}]\nqueues: {b: {}}\n', "the wildcards of 'a-*'"),
    ],
)
def test_renames_that_make_no_sense(light_desk: Desk, config: str, says: str) -> None:
    with pytest.raises(SourceError, match="moved") as fault:
        light_desk.config(config)
    assert says in str(fault.value)


RULE = '{when: "queue.name matches \'prod-*\'", must: "dead.archive and dead.keep >= 1000", say: no death is lost}'


@pytest.fixture
def rules(tmp_path: Path, valkey: Valkey, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config of two queues, of which one breaks RULE."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(
        f'server: {{url: "{valkey.url}"}}\nstate: {{url: "sqlite:///state.db"}}\n'
        'archive: {remote: {url: "file:b"}}\n'
        "queues:\n  prod-a: {dead: {keep: 1000, archive: true}}\n  prod-b: {dead: {keep: 999, archive: true}}\n"
        "  dev: {stalled: {}}\n"
    )
    return tmp_path


@pytest.mark.usefixtures("rules")
def test_rules_of_the_config_and_of_a_file() -> None:
    Path("rules.yaml").write_text(f"- {RULE}\n")
    assert emq("plan").code == 2
    for command in (("plan",), ("plan", "--offline"), ("apply", "--yes")):
        ran = emq(*command, "--rules", "rules.yaml")
        assert (ran.code, "prod-b: the rule of rules.yaml" in ran.err) == (1, True)
        assert ("no death is lost" in ran.err, "prod-a" in ran.err) == (True, False)
    Path("config.yaml").write_text(Path("config.yaml").read_text() + f"plan_rules:\n  - {RULE}\n")
    ran = emq("apply", "--yes")
    line = len(Path("config.yaml").read_text().splitlines())
    assert (ran.code, f"line {line}" in ran.err or f":{line}:" in ran.err) == (1, True)
    Path("config.yaml").write_text(Path("config.yaml").read_text().replace("999", "1000"))
    assert emq("apply", "--yes").code == 0


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("{must: dead.kep > 1}", "did you mean 'dead.keep'"),
        ("{must: dea.keep > 1}", "did you mean 'dead'"),
        ("{must: 'dead.keep >'}", "in the expression"),
        ("{must: dead.keep}", "must be true or false"),
        ("{when: 'true'}", "must"),
    ],
)
@pytest.mark.usefixtures("rules")
def test_rules_that_can_t_be_told(rule: str, says: str) -> None:
    Path("rules.yaml").write_text(f"- {rule}\n")
    ran = emq("plan", "--rules", "rules.yaml")
    assert (ran.code, "rules.yaml" in ran.err, says in ran.err) == (4, True, True)


@pytest.mark.usefixtures("rules")
def test_nothing_to_resume() -> None:
    ran = emq("apply", "--resume")
    assert (ran.code, "nothing to resume" in ran.err) == (0, True)
