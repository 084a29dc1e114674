"""``emq-ops doctor`` as an operator types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emq_ops.ledger import acts, alerts, runs
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.protocol.server import Server
from tests.audit.damage import DAMAGES, GONE
from tests.audit.healthy import build
from tests.support.cli import Ran, emq
from tests.support.keyspace import dump, load_live
from tests.support.valkey import Valkey


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def doctor(valkey: Valkey, *argv: str) -> Ran:
    return emq("doctor", "--url", valkey.url, *argv)


def test_nothing_on_the_live_keyspace(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    load_live(server)
    before = dump(server)
    ran = doctor(valkey)
    assert (ran.code, ran.out) == (0, "")
    assert "441 keys of 4 queues: nothing to mend" in ran.err
    assert doctor(valkey, "--fix", "--yes").code == 0
    assert dump(server) == before
    assert not list(tmp_path.rglob("*.db"))


def test_shown_first_then_mended_and_recorded(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    world = build(server)
    server.write("ZADD", world.k.active, server.now_ms("orders"), GONE)
    server.write("SET", world.k.named(b"\x1b[31mnotes"), "x")
    planted = dump(server)
    state = f"sqlite:///{tmp_path}/state.db"
    open_ledger(state).close()
    for argv in ((), ("--fix", "--dry-run"), ("--fix", "--dry-run", "--yes")):
        ran = doctor(valkey, "--state", state, *argv)
        assert ran.code == 2
        assert GONE in ran.out
        assert "ghost: an id in active without a row" in ran.err
        assert "\x1b" not in ran.out + ran.err
        assert dump(server) == planted
    ran = doctor(valkey, "--state", state, "--fix", "--yes")
    assert ran.code == 2  # the unknown key is for a person
    assert f"mended: orders ghost {GONE}" in ran.err
    assert "1 left" in ran.err
    with open_ledger(state) as ledger:
        [run] = runs.latest(ledger)
    assert (run.kind, run.queue, run.counts) == ("doctor", "orders", {"ghost mended": 1})


def test_json_holds_everything(server: Server, valkey: Valkey) -> None:
    world = build(server)
    for damage in DAMAGES:
        if damage.kind in ("unknown_key", "odd_score", "bad_limit"):
            damage.plant(server, world)
    ran = doctor(valkey, "orders", "--output", "json")
    document = json.loads(ran.out)
    assert {f["kind"] for f in document["findings"]} == {"unknown_key", "odd_score", "bad_limit"}
    assert all(f["meaning"] and f["mending"] and f["detail"] for f in document["findings"])
    assert {f["kind"]: f["safe"] for f in document["findings"]} == {
        "unknown_key": False,
        "odd_score": True,
        "bad_limit": False,
    }
    assert doctor(valkey, "orders", "--only", "bad_limit", "--also", "bad_limit", "--fix", "--yes").code == 0
    assert {f["kind"] for f in json.loads(doctor(valkey, "--output", "json").out)["findings"]} == {
        "unknown_key",
        "odd_score",
    }


def test_without_a_terminal_fix_mends_what_is_safe_and_json_tells_it(server: Server, valkey: Valkey) -> None:
    world = build(server)
    before = dump(server)
    server.write("ZADD", world.k.active, server.now_ms("orders"), GONE)
    ran = doctor(valkey, "--fix", "--also", "bad_limit")
    assert (ran.code, "nobody to ask" in ran.err) == (4, True)
    ran = doctor(valkey, "--fix", "--output", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["left"]) == (0, [])
    assert [(f["kind"], f["subject"]) for f in document["findings"]] == [("ghost", GONE)]
    wanted = {"queue": "orders", "kind": "ghost", "subject": GONE, "outcome": "mended", "why": ""}
    assert document["mended"] == [wanted]
    shown, done = f"orders ghost {GONE}: takes the id out of the set", f"mended: orders ghost {GONE}"
    assert ran.err.index(shown) < ran.err.index(done)
    assert dump(server) == before


def test_selectors(server: Server, valkey: Valkey) -> None:
    build(server)
    server.write("ZADD", "emq:{mail[1]}:dead", 0, GONE)
    server.write("ZADD", "emq:{mail1}:dead", 0, GONE)
    rows = json.loads(doctor(valkey, "mail[1]", "--output", "json").out)["findings"]
    assert [row["queue"] for row in rows] == ["mail[1]"]
    assert len(json.loads(doctor(valkey, "mail*", "--output", "json").out)["findings"]) == 2
    for bad in ("nothing", "x*", "a{b"):
        ran = doctor(valkey, bad)
        assert ran.code == 4
        assert ran.err.count("\n") == 1
    assert doctor(valkey, "--only", "gohst").code == 4
    assert emq("doctor", "--url", "unix:///nowhere/at/all").code == 3


def test_a_configured_queue_may_be_empty(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"server: {{url: '{valkey.url}'}}\nqueues: {{idle: {{}}}}\n")
    ran = emq("doctor", "-c", config, "idle")
    assert ran.code == 0
    assert "0 keys of 1 queues" in ran.err


def test_competitors_are_told(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    build(server)
    state = f"sqlite:///{tmp_path}/state.db"
    with open_ledger(state) as ledger, ledger.write() as connection:
        alerts.note_competitor(connection, "orders", alerts.RECOVERER, 1_732_000_000_000, 3, {})
    ran = doctor(valkey, "--state", state)
    assert ran.code == 0
    said = "orders: competing recoverer: workers recover lapsed leases themselves"
    assert said in ran.err
    for argv in (("dead", "orders"), ("dead", "orders", "--list"), ("restarts",), ("restarts", "--html", "-")):
        ran = emq("audit", *argv, "--url", valkey.url, "--state", state)
        assert ran.code == 0
        assert said in ran.err
    assert said in ran.out  # the page says it too


def test_every_kind_is_listed(server: Server, valkey: Valkey) -> None:
    ran = emq("doctor", "--kinds", "--output", "json")
    assert len(json.loads(ran.out)) >= 30


def test_an_act_that_was_killed_is_told(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    world = build(server)
    state = f"sqlite:///{tmp_path}/state.db"
    with open_ledger(state) as ledger:
        run = act(server, acts.REMOVE, choose(server, "orders", DeadSelection(jobs=(world.dead[0],))), ledger).run or ""
        assert "was not ended" not in doctor(valkey, "--state", state).err
        with ledger.write() as connection:
            runs.finish(connection, run, runs.INTERRUPTED)
    ran = doctor(valkey, "--state", state)
    assert ran.code == 0
    assert f"emq-ops audit dead --resume {run}, or emq-ops undo {run}" in ran.err
    assert doctor(valkey, "--state", state, "--output", "json").code == 0
