"""`import` where a state manages queues already: a plan of what it writes exits 0, whatever moved since."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control, repeat
from tests.support.cli import emq
from tests.support.valkey import Valkey

LANES = ["GRP0SSBKAh61tG", "GRP0SSBKAh61tH"]
PASSES = {
    "stalled": ["{every: 30s, max_stalled: 3}", "{every: 5s, enabled: false}"],
    "dead": ["{every: 10m, keep: 100}", '{every: 10m, keep: "${KEEP:-7}", max_age: 30d}'],
    "promote": ["{every: 1s}"],
    "streams": ["{completions: {every: 5s}}", "{completions: {every: 5s, keep: 10}, audit: {every: 1m}}"],
}
GLOBALS = """\
archive: {remote: {url: "file:bucket"}, sign: "${KEY}"}
maintenance: [{queues: mail, cron: "0 3 * * *", for: 1h}]
daemon: {threads: 3}
alerts: [{url: "json://localhost", on: [stalled]}]
"""


def policies(dice: random.Random) -> list[str]:
    return [f"{name}: {dice.choice(PASSES[name])}" for name in PASSES if dice.random() < 0.5]


def settings(dice: random.Random) -> str:
    said = []
    if dice.random() < 0.5:
        said.append(f"paused: {dice.choice(['true', 'false'])}")
    if dice.random() < 0.5:
        said.append("concurrency: " + dice.choice(["3", "50", '"${CC:-8}"']))
    if dice.random() < 0.5:
        said.append("rate: 9")
    if dice.random() < 0.5:
        said.append(f"lanes: {{{LANES[0]}: {{limit: 2, paused: {dice.choice(['true', 'false'])}}}}}")
    if dice.random() < 0.5:
        said.append("repeatables: {nightly: {every: 1d, template: 'costs $5 # ${X:-all}'}}")
    return f"settings: {{{', '.join(said)}}}"


def entry(dice: random.Random, *, repeatables: bool = True) -> str:
    said = settings(dice)
    if not repeatables and "repeatables" in said:
        said = "settings: {concurrency: 4}"
    return "{" + ", ".join([*policies(dice), said, *(["protect: true"] if dice.random() < 0.3 else [])]) + "}"


def move(server: Server, dice: random.Random, queue: str) -> None:
    """What people do by hand, and playbooks do."""
    q = Queue(server, queue)
    acts: list[Callable[[], object]] = [
        lambda: control.pause_queue(q),
        lambda: control.resume_queue(q),
        lambda: control.set_concurrency(q, dice.choice([5, 60])),
        lambda: server.write("HDEL", q.keys.meta, "concurrency"),
        lambda: control.set_rate(q, 11),
        lambda: control.limit_lane(q, dice.choice(LANES), 5),
        lambda: control.pause_lane(q, LANES[0]),
        lambda: repeat.register(q, "hourly", 3_600_000, b"by hand ${HOME}"),
        lambda: server.write("XADD", q.keys.stream(dice.choice(["completions", "more"])), "*", "id", "x"),
    ]
    for act in dice.sample(acts, dice.randint(0, 4)):
        act()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bucket").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY", "hunter2")
    return tmp_path


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_of_what_was_imported_changes_nothing(seed: int, folder: Path, server: Server, valkey: Valkey) -> None:
    dice = random.Random(seed)
    for queue in ("orders", "mail-1", "mail-2", "loose"):
        control.set_concurrency(Queue(server, queue), 7)
        server.write("SADD", Queue(server, queue).keys.paused, LANES[1])  # so that the queue is there, whatever moves
    places = f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///state.db', retain: 30d}}\n"
    defaults = f"defaults: {entry(dice, repeatables=False)}\n" if dice.random() < 0.6 else ""
    queues = f"queues:\n  orders: {entry(dice)}\n  mail-*: {entry(dice, repeatables=False)}\n  mail-2: {entry(dice)}\n"
    Path("config.yaml").write_text(places + GLOBALS + defaults + queues)
    done = emq("apply", "--yes")
    assert done.code == 0, (Path("config.yaml").read_text(), done)
    for queue in ("orders", "mail-1", "mail-2", "loose"):
        move(server, dice, queue)
    imported = emq("import", "--out", "new.yaml")
    assert imported.code == 0, imported
    shown = emq("plan", "-c", "new.yaml")
    assert shown.code == 0, shown.out + Path("new.yaml").read_text()
    assert emq("apply", "--yes", "-c", "new.yaml").code == 0
    again = emq("plan", "-c", "new.yaml")
    assert (again.code, again.out.splitlines()[-1]) == (0, "Nothing to do.")


def test_the_file_names_what_it_is_and_keeps_what_was_written(folder: Path, server: Server, valkey: Valkey) -> None:
    q = Queue(server, "orders")
    server.write("XADD", q.keys.stream("completions"), "*", "id", "x")
    server.write("XADD", q.keys.stream("more"), "*", "id", "x")
    Path("config.yaml").write_text(
        f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///state.db'}}\narchive: {{}}\n"
        "queues:\n  orders: {note: of the shop, streams: {completions: {every: 5s}}, settings: {concurrency: 3}}\n"
    )
    assert emq("apply", "--yes").code == 0
    control.set_concurrency(q, 4)
    text = emq("import").out
    assert text.startswith("# Written by `emq-ops import`: revision 1, with the settings that are on the server.\n")
    assert "#   orders: more\n" in text
    assert "note: of the shop" in text
    assert "concurrency: 4" in text
    Path("new.yaml").write_text(text)
    shown = emq("plan", "-c", "new.yaml")
    assert shown.code == 0
    assert shown.out.endswith("Nothing changes: 1 setting is so already; with the next apply they are on record.\n")


def test_what_destroy_took_away_is_not_brought_back(folder: Path, server: Server, valkey: Valkey) -> None:
    control.set_concurrency(Queue(server, "orders"), 3)
    Path("config.yaml").write_text(
        f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///state.db'}}\n"
        "defaults: {stalled: {every: 30s}}\nqueues: {orders: {settings: {concurrency: 3}}, mail: {}}\n"
    )
    assert emq("apply", "--yes").code == 0
    assert emq("destroy", "orders", "--yes").code == 0
    server.write("UNLINK", Queue(server, "mail").keys.meta)
    imported = emq("import", "--out", "new.yaml")
    assert imported.code == 0
    assert "emq-ops: mail is not on the server: it is in the file as in the revision" in imported.err
    shown = emq("plan", "-c", "new.yaml")
    assert shown.code == 0, shown
