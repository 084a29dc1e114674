"""After a disaster: the box is gone, or an old backup stands in its place; one verb puts a database in charge."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.daemons import Site, site, wait_for
from tests.support.passing import stall
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///local.db", remote: {{url: "file:{bucket}"}}, ship_after: 1s}}
daemon: {{lease: 2s}}
queues:
  orders:
    stalled: {{every: 100ms, max_stalled: 1}}
    dead: {{every: 200ms, keep: 2, archive: true}}
    streams: {{completions: {{every: 200ms, keep: 3}}}}
"""


@pytest.fixture
def at(tmp_path: Path, valkey: Valkey) -> Iterator[Callable[[str], Site]]:
    """A host by its name: all have one server and one bucket, each a state of its own."""
    with ExitStack() as stack:
        text = CONFIG.format(socket=valkey.socket, bucket=tmp_path / "bucket")
        yield lambda name: stack.enter_context(site(tmp_path / name, text))


def events(server: Server, q: Queue, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        server.write("XADD", q.keys.stream("completions"), "*", "job", f"j{number}")


def archived(host: Site) -> int:
    return len(host.run("archive", "read", "orders", "--no-live", "--output", "jsonl").out.splitlines())


def work(host: Site, server: Server, q: Queue, first: int) -> None:
    """One round of every pass."""
    events(server, q, 20, first)
    stall(q, 5)
    host.run("sweep", "orders")
    host.run("trim", "orders")  # the first one after an apply is bounded by what the plan listed
    host.run("trim", "orders")
    host.run("archive", "fold", "orders")


STEPS = {
    "restore": ("archive", "restore", "orders"),
    "restore dead": ("archive", "restore", "orders", "dead"),
    "take over": ("state", "take-over", "--yes"),
    "apply": ("apply", "--yes", "--allow-loss"),
}


ORDERS = [p for p in permutations(STEPS) if p.index("take over") < p.index("apply")]


@pytest.mark.parametrize(
    "order", [ORDERS[0], ORDERS[-3], *(pytest.param(p, marks=pytest.mark.soak) for p in ORDERS[3:-3:3])]
)
def test_the_box_is_gone_and_another_goes_on(at: Callable[[str], Site], server: Server, order: tuple[str, ...]) -> None:
    q = Queue(server, "orders")
    lost = at("lost")
    lost.run("apply", "--yes", "--allow-loss")
    work(lost, server, q, 0)
    before = archived(lost)
    shutil.rmtree(lost.folder)
    fresh = at("fresh")
    said = fresh.run("sweep", "orders", code=1)  # nothing goes on behind the owner's back, and what to do is told
    assert "emq-ops state take-over" in said.err
    for step in order:
        fresh.run(*STEPS[step])
        fresh.run(*STEPS[step])  # once more is no harm
    fresh.run("archive", "verify", "orders")
    assert archived(fresh) == before
    work(fresh, server, q, 20)
    assert archived(fresh) > before
    assert reads.counts(q).dead == 2
    assert server.read("XLEN", q.keys.stream("completions")) == 3
    fresh.run("archive", "verify", "orders")
    fresh.run("archive", "verify", "orders", "dead")


def test_a_second_host_takes_nothing_over_by_a_restore(at: Callable[[str], Site], server: Server) -> None:
    q = Queue(server, "orders")
    owner, second = at("owner"), at("second")
    owner.run("apply", "--yes", "--allow-loss")
    daemon = owner.up()
    events(server, q, 20)
    wait_for(lambda: archived(owner) == 20)
    wait_for(lambda: owner.json("archive", "status", "orders", "completions")["unshipped"] == 0)
    told = second.run("archive", "restore", "orders").err
    (second.folder / "window.yaml").write_text("- queues: orders\n  tasks: [{name: window, maintenance: {for: 5m}}]\n")
    assert "only to be read from here" in told
    state = owner.json("state", "status")["state"]
    for words in (
        ("sweep", "orders"),
        ("trim", "orders"),
        ("archive", "fold", "orders"),
        ("archive", "erase", "orders", "completions", "--job", "j1", "--yes"),
        ("hold", "orders", "--for", "5m"),
        ("release", "orders"),
        ("maintenance", "start", "--for", "5m"),
        ("maintenance", "start", "--for", "5m", "--queues", "orders"),
        ("maintenance", "stop"),
        ("apply", "--yes", "--allow-loss"),
    ):
        said = second.run(*words, code=1)
        assert state in said.err + said.out, words
    played = second.run("play", str(second.folder / "window.yaml"), code=2)
    assert state in played.err + played.out
    refused = second.run("state", "take-over", state, "--yes", code=1).err  # its daemon lives
    assert "leads this queue" in refused
    daemon.stop()
    wait_for(lambda: second.json("state", "take-over", state, "--yes")["state"] == state)
    said = owner.run("sweep", "orders", code=1)
    assert "another database of this state led the queue since" in said.err
    assert owner.run("archive", "erase", "orders", "completions", "--job", "j1", "--yes", code=1)
    second.run("archive", "fold", "orders")
    second.run("sweep", "orders")


def test_an_older_state_and_an_older_keyspace_go_on_above_the_log(at: Callable[[str], Site], server: Server) -> None:
    """Both were restored from one night's backup; the archive remembers more."""
    q = Queue(server, "orders")
    host = at("host")
    host.run("apply", "--yes", "--allow-loss")
    work(host, server, q, 0)
    host.run("state", "backup", str(host.folder / "night.db"))
    lease = server.read("HGETALL", q.keys.lease)
    for first in (20, 40, 60):
        work(host, server, q, first)
    kept = archived(host)
    for file in host.folder.glob("state.db*"):
        file.unlink()
    (host.folder / "night.db").rename(host.folder / "state.db")
    server.write("UNLINK", q.keys.lease)
    server.write("HSET", q.keys.lease, *lease)
    work(host, server, q, 80)
    assert archived(host) == kept + 20
    host.run("archive", "verify", "orders")


def test_a_copied_state_is_refused_like_a_foreign_one(at: Callable[[str], Site], server: Server) -> None:
    owner, copy = at("owner"), at("copy")
    owner.run("apply", "--yes", "--allow-loss")
    owner.run("archive", "fold", "orders")
    owner.run("state", "backup", str(copy.folder / "state.db"))
    owner.run("sweep", "orders")
    for words in (("sweep", "orders"), ("hold", "orders", "--for", "5m"), ("apply", "--yes", "--allow-loss")):
        said = copy.run(*words, code=1)
        assert "another database of this state led the queue since" in said.err + said.out, words
    owner.run("sweep", "orders")


def test_a_backup_put_back_under_a_running_daemon_is_refused_with_what_to_do(
    at: Callable[[str], Site], server: Server
) -> None:
    q = Queue(server, "orders")
    host = at("host")
    host.run("apply", "--yes", "--allow-loss")
    host.run("state", "backup", str(host.folder / "night.db"))
    daemon = host.up()
    stall(q, 3)
    wait_for(lambda: reads.counts(q).active == 0)
    for file in host.folder.glob("state.db*"):
        file.unlink()
    (host.folder / "night.db").rename(host.folder / "state.db")
    fault = wait_for(lambda: daemon.events("state_fault"))[-1]
    assert "start anew (an older one: `emq-ops state take-over`)" in fault["error"]
    daemon.stop()
    assert "emq-ops state take-over" in host.run("sweep", "orders", code=1).err
    host.run("state", "take-over", "--yes")
    daemon = host.up()
    stall(q, 3)
    wait_for(lambda: reads.counts(q).active == 0)
    daemon.stop()
