"""Every door to every pass against what an operator, the config or another state forbids: one rule for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.passes.registry import PASSES
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.enqueue import schedule_in
from tests.support.daemons import Site, site, wait_for
from tests.support.orders import lapsed
from tests.support.passing import kill_row
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
archive:
  local: "sqlite:///archive.db"
  remote: {{url: "file:bucket"}}
  compact: {{enabled: false}}
  verify: {{enabled: false}}
daemon: {{lease: 3s}}
queues:
  orders:
    protect: {protect}
    stalled: {{every: {every}, max_stalled: 1, restart: exempt, max_exempt: 3}}
    dead: {{every: {every}, keep: 1, archive: false}}
    streams: {{completions: {{every: {every}, keep: 1}}}}
    promote: {{every: {every}}}
"""
BOOK = """
- name: all
  queues: orders
  tasks:
    - {{name: one, {module}: {{}}}}
"""
COMMANDS = {
    "sweep": ("sweep", "orders"),
    "trim": ("trim", "orders"),
    "archive": ("archive", "fold", "orders", "completions"),
    "promote": ("promote", "orders"),
}
MODULES = {"sweep": "sweep", "trim": "trim_dead", "archive": "archive", "promote": "promote"}
NAMES = [one.name for one in PASSES if not one.of_archive]


def test_every_pass_has_its_doors_here() -> None:
    assert sorted(COMMANDS) == sorted(MODULES) == sorted(NAMES)


def made(folder: Path, valkey: Valkey, *, protect: str = "false", every: str = "1h") -> Site:
    return Site(folder, CONFIG.format(socket=valkey.socket, protect=protect, every=every))


def seed(server: Server) -> None:
    """Something to do for every pass."""
    q = Queue(server, "orders")
    kill_row(q, 3)
    lapsed(server, 2)
    for n in range(4):
        server.write("XADD", q.keys.stream("completions"), f"{1_796_000_000_000 + n}-0", "job", f"j{n}")
    schedule_in(q, mint(), b"x", 1)
    wait_for(lambda: server.read("ZCOUNT", q.keys.schedule, "-inf", server.now_ms("orders")) == 1)


def done(server: Server) -> set[str]:
    """The passes whose work is done on the queue."""
    k = Queue(server, "orders").keys
    active, dead, length, scheduled = server.read_many(
        [("ZCARD", k.active), ("ZCARD", k.dead), ("XLEN", k.stream("completions")), ("ZCARD", k.schedule)]
    )
    facts = {"sweep": active == 0, "trim": dead == 1, "archive": length == 1, "promote": scheduled == 0}
    return {name for name, there in facts.items() if there}


def refused(here: Site) -> dict[str, tuple[int, str]]:
    """Of each pass the row of its refusals: how many, and why. More than one row is a failure."""
    rows = [row for row in here.json("runs", "ls") if row["status"] == "refused"]
    assert len({row["kind"] for row in rows}) == len(rows)
    return {row["kind"]: (row["counts"].get("times", 1), row["error"]) for row in rows}


def owned_by(other: Ledger, here: Site, server: Server) -> None:
    """The queue is another state's from now on, and led by it."""
    with open_ledger(f"sqlite:///{here.folder}/state.db") as ours:
        QueueLease(server, other, "orders", lease_ms=60_000).try_acquire(disown=ours.state)


# The doors. Each asks for every pass; where something refuses it, it says so by an exit code or a row.


def by_command(here: Site, codes: dict[str, int]) -> None:
    for name, words in COMMANDS.items():
        here.run(*words, code=codes.get(name, 0))


def by_play(here: Site, codes: dict[str, int]) -> None:
    for name, module in MODULES.items():
        (here.folder / "book.yaml").write_text(BOOK.format(module=module))
        here.run("play", str(here.folder / "book.yaml"), "--yes", code=2 if codes.get(name) else 0)


def by_once(here: Site, codes: dict[str, int]) -> None:
    rows = here.json("up", "--once", code=None)
    assert {row["task"].split(":")[0] for row in rows} <= {"stalled", "dead", "stream", "promote"}


def by_request(here: Site, codes: dict[str, int]) -> None:
    daemon = here.up()
    for name, words in COMMANDS.items():
        found = here.json(*words, code=codes.get(name, 0)) if codes.get(name, 0) == 0 else here.run(*words, code=1)
        assert codes.get(name) or "through" in found
    daemon.stop()


def by_daemon(here: Site, codes: dict[str, int]) -> None:
    here.write((here.folder / "config.yaml").read_text().replace("every: 1h", "every: 200ms"))
    here.run("apply", "--yes", "--allow-loss")
    daemon = here.up()
    wait_for(lambda: {*refused(here), *(row["kind"] for row in here.json("runs", "ls"))} >= set(codes or NAMES))
    daemon.stop()


DOORS: dict[str, Callable[[Site, dict[str, int]], Any]] = {
    "command": by_command,
    "play": by_play,
    "once": by_once,
    "request": by_request,
    "daemon": by_daemon,
}
every_door = pytest.mark.parametrize("door", list(DOORS))


@pytest.fixture
def here(tmp_path: Path, valkey: Valkey, server: Server) -> Iterator[Site]:
    with site(tmp_path / "s", CONFIG.format(socket=valkey.socket, protect="false", every="1h")) as opened:
        opened.run("apply", "--yes", "--allow-loss")
        kill_row(Queue(server, "orders"), 1)
        opened.run("trim", "orders")  # the first one after an apply removes nothing that its plan did not list
        yield opened


@every_door
def test_a_held_queue_is_left_alone(here: Site, server: Server, door: str) -> None:
    here.run("hold", "orders", "--for", "1h")
    seed(server)
    DOORS[door](here, dict.fromkeys(NAMES, 1))
    assert done(server) == set()
    found = refused(here)
    assert set(found) == set(NAMES)
    assert all(why.startswith("held by ") for _, why in found.values())
    if door == "command":
        DOORS[door](here, dict.fromkeys(NAMES, 1))
        assert {times for times, _ in refused(here).values()} == {2}
    here.run("release", "orders")
    by_command(here, {})
    assert done(server) == set(NAMES)


@every_door
def test_a_protected_queue_loses_nothing(here: Site, server: Server, door: str) -> None:
    here.write((here.folder / "config.yaml").read_text().replace("protect: false", "protect: true"))
    here.run("apply", "--yes", "--allow-loss")
    seed(server)
    if door == "daemon":
        DOORS[door](here, dict.fromkeys(("sweep", "archive", "promote"), 0))
    else:
        DOORS[door](here, {"trim": 1})
    assert done(server) == {"sweep", "promote"}  # and the archive folds, and trims nothing
    assert here.json("archive", "status", "orders", "completions")["lag_records"] == 0


@pytest.mark.parametrize("door", ["command", "play", "once"])
def test_a_queue_of_another_state_is_left_alone(here: Site, server: Server, tmp_path: Path, door: str) -> None:
    seed(server)
    with open_ledger(f"sqlite:///{tmp_path}/other.db") as other:
        owned_by(other, here, server)
        DOORS[door](here, dict.fromkeys(NAMES, 1))
    assert done(server) == set()
    found = refused(here)
    assert set(found) == set(NAMES)
    assert all("belongs to state" in why for _, why in found.values())


def test_a_daemon_does_not_begin_on_a_queue_of_another_state(here: Site, server: Server, tmp_path: Path) -> None:
    seed(server)
    with open_ledger(f"sqlite:///{tmp_path}/other.db") as other:
        owned_by(other, here, server)
        daemon = here.up(ready=False)
        assert daemon.process.wait(30) != 0
    assert done(server) == set()


@every_door
def test_a_stall_in_a_maintenance_window_is_not_counted(here: Site, server: Server, door: str) -> None:
    here.run("maintenance", "start", "--for", "1h")
    seed(server)
    DOORS[door](here, {})
    if door == "daemon":
        wait_for(lambda: done(server) == set(NAMES))
    assert done(server) == set(NAMES)
    counts = [row["counts"] for row in here.json("runs", "ls") if row["kind"] == "sweep"]
    assert [sum(count.get(name, 0) for count in counts) for name in ("recovered", "exempted", "dead")] == [2, 2, 0]
