"""The embedded server: started once, shared, survived by its data, gone when nobody uses it, whoever is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emq_ops.protocol.connection import guardian
from emq_ops.protocol.connection.processes import find_binary
from emq_ops.protocol.errors import BadInputError, OutcomeUnknownError, UnreachableError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import ConnectionOptions, Server, connect
from emq_ops.protocol.transitions.claims import claim
from emq_ops.protocol.transitions.enqueue import enqueue
from emq_ops.protocol.transitions.reads import counts
from tests.support.cluster import until

KEY = "emq:{mail}:meta"


def alive(base: Path, name: str = "server") -> bool:
    """Whether the server (or the ``guard``) of that folder lives: it holds its lock as long as it does."""
    path = base / ".emq" / "server" / f"{name}.lock"
    if not path.exists():
        return False
    with path.open("r+") as file:
        return not guardian.try_lock(file.fileno(), fcntl.LOCK_EX)


def gone(base: Path) -> None:
    until("nothing runs there", lambda: not alive(base) and not alive(base, "guard"))
    left = {entry.name for entry in (base / ".emq" / "server").iterdir()}
    assert left <= {"appendonlydir", "server.log", "start.lock", "users.lock", "server.lock", "guard.lock"}


def add(server: Server) -> int:
    return int(server.write("HINCRBY", KEY, "n", 1))


def pid_of(server: Server) -> int:
    return int(server.info("mail", "server")["process_id"])


def guard_of(base: Path) -> int:
    """The watcher's process id: it is the one whose command line names the folder."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if guardian.__file__.encode() in words and str(base / ".emq" / "server").encode() in words:
                return int(entry.name)
    raise AssertionError("no watcher")


@contextlib.contextmanager
def user(base: Path, work: Callable[[Server], object] = lambda server: None) -> Iterator[int]:
    """A process of its own that connects, works, and then stays until it is killed; answers its id once it has
    worked."""
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            server = connect("embedded", base_dir=base)
            work(server)
            os.write(done, b"1")
            signal.pause()
        finally:
            os._exit(1)
    os.close(done)
    try:
        assert os.read(ready, 1) == b"1"
        yield child
    finally:
        os.close(ready)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_it_starts_is_joined_stops_and_keeps_its_data(tmp_path: Path) -> None:
    with connect("embedded", base_dir=tmp_path) as server:
        assert add(server) == 1
        life = server.run_id("mail")
        with connect("embedded", base_dir=tmp_path) as other:
            assert other.run_id("mail") == life
            assert add(other) == 2
        assert alive(tmp_path)
        pid = tmp_path / ".emq" / "server" / "server.pid"
        assert pid.exists()
        assert add(server) == 3
        config = dict(zip(*[iter(server.read_on("mail", "CONFIG", "GET", "append*"))] * 2, strict=False))
        assert (config[b"appendonly"], config[b"appendfsync"]) == (b"yes", b"always")
    # The last one out has stopped it, not just asked. (The watcher wakes now, and may hold the server's lock a moment.)
    assert not pid.exists()
    gone(tmp_path)
    with connect("embedded", base_dir=tmp_path) as server:
        assert add(server) == 4
        assert server.run_id("mail") != life
    gone(tmp_path)


@pytest.mark.parametrize("attempt", range(4))
def test_eight_commands_at_once(tmp_path: Path, attempt: int) -> None:
    gate, opener = os.pipe()
    lives, reports = os.pipe()
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(opener)
                os.read(gate, 1)  # all of them wait for the gate to open
                with connect("embedded", base_dir=tmp_path) as server:
                    add(server)
                    until("all are there", lambda: server.read("HGET", KEY, "n") == b"8")
                    os.write(reports, server.run_id("mail").encode() + b"\n")
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    for fd in (gate, opener, reports):
        os.close(fd)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    with os.fdopen(lives) as file:
        seen = file.read().split()
    assert len(seen) == 8
    assert len(set(seen)) == 1
    gone(tmp_path)


def test_commands_that_come_and_go(tmp_path: Path) -> None:
    """Starts and stops that overlap: forks that connect, add and leave, again and again."""
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(6):
                    with connect("embedded", base_dir=tmp_path) as server:
                        add(server)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    with connect("embedded", base_dir=tmp_path) as server:
        assert add(server) == 25
    gone(tmp_path)


def test_the_owner_is_killed(tmp_path: Path) -> None:
    with user(tmp_path, add):
        assert alive(tmp_path)
    gone(tmp_path)
    with connect("embedded", base_dir=tmp_path) as server:
        assert add(server) == 2
    gone(tmp_path)


def test_the_owner_is_killed_beside_another_user(tmp_path: Path) -> None:
    with contextlib.ExitStack() as later:
        with user(tmp_path, add):
            server = later.enter_context(connect("embedded", base_dir=tmp_path))
            life = server.run_id("mail")
        for _ in range(20):
            add(server)
        assert server.run_id("mail") == life
    gone(tmp_path)


def test_the_server_is_killed(tmp_path: Path) -> None:
    with connect("embedded", base_dir=tmp_path) as server:
        for n in range(1, 4):
            assert add(server) == n
            os.kill(pid_of(server), signal.SIGKILL)
            until("it is gone", lambda: not alive(tmp_path))
        with connect("embedded", base_dir=tmp_path) as other:
            assert add(other) == 4
            assert add(server) == 5
            assert other.run_id("mail") == server.run_id("mail")
    gone(tmp_path)


def test_owner_and_watcher_are_killed(tmp_path: Path) -> None:
    with user(tmp_path, add):
        os.kill(guard_of(tmp_path), signal.SIGKILL)
        until("the watcher is gone", lambda: not alive(tmp_path, "guard"))
    assert alive(tmp_path)  # left alone; whoever comes next takes it over, with a new watcher
    with user(tmp_path, add):
        assert alive(tmp_path, "guard")
    gone(tmp_path)
    with connect("embedded", base_dir=tmp_path) as server:
        assert add(server) == 3


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 4, 8, 16, 32, 64])
def test_a_start_is_killed_anywhere(tmp_path: Path, milliseconds: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            connect("embedded", base_dir=tmp_path)
            signal.pause()
        finally:
            os._exit(1)
    time.sleep(milliseconds / 1000)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    began = time.monotonic()
    with connect("embedded", base_dir=tmp_path) as server:
        assert add(server) == 1
    assert time.monotonic() - began < 15  # nothing was stuck
    gone(tmp_path)


def test_no_server_starts_before_its_watcher(tmp_path: Path) -> None:
    """Else a start that is killed in between leaves a server that nobody stops."""
    program = tmp_path / "program"
    lock = tmp_path / ".emq" / "server" / "guard.lock"
    program.write_text(
        f"#!{sys.executable}\nimport fcntl, os, sys\n"
        f"with open({str(lock)!r}, 'a') as lock:\n"
        "    try:\n        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    except BlockingIOError:\n"
        f"        os.execv({find_binary()!r}, [{find_binary()!r}, *sys.argv[1:]])\n"
    )
    program.chmod(0o755)
    with connect("embedded", ConnectionOptions(server_binary=str(program)), base_dir=tmp_path) as server:
        assert add(server) == 1


@pytest.mark.soak(minutes=1)
def test_kills_of_anybody_for_long(tmp_path: Path) -> None:
    """Users, server and watcher are killed at random: no acknowledged write is lost, nothing is ever stuck."""
    rng = random.Random(20_26)
    acks, acked = os.pipe()
    total = 0
    for _ in range(80):
        children = []
        for _ in range(rng.randint(1, 4)):
            child = os.fork()
            if child == 0:
                try:
                    _add_for_ever(tmp_path, acked)
                finally:
                    os._exit(1)
            children.append(child)
        for _ in range(rng.randint(0, 3)):
            time.sleep(rng.random() / 20)
            victim = rng.choice(["server", "watcher"])
            with contextlib.suppress(OSError, ValueError, AssertionError):
                pid = (
                    guard_of(tmp_path)
                    if victim == "watcher"
                    else int((tmp_path / ".emq" / "server" / "server.pid").read_text())
                )
                os.kill(pid, signal.SIGKILL)
        time.sleep(rng.random() / 20)
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.set_blocking(acks, False)
        with contextlib.suppress(BlockingIOError):
            while got := os.read(acks, 65536):
                total += len(got)
        with connect("embedded", base_dir=tmp_path) as server:
            assert int(server.read("HGET", KEY, "n") or 0) >= total
    assert total > 100
    gone(tmp_path)


def _add_for_ever(base: Path, acked: int) -> None:
    with connect("embedded", base_dir=base) as server:
        while True:
            with contextlib.suppress(OutcomeUnknownError, UnreachableError):
                add(server)
                os.write(acked, b"1")


def test_a_long_folder_has_its_socket_elsewhere(tmp_path: Path) -> None:
    base = tmp_path / ("long-" * 12) / ("päth " * 10).strip()
    base.mkdir(parents=True)
    with connect("embedded", base_dir=base) as server:
        assert add(server) == 1
        socket = Path(guardian.read_record(str(base / ".emq" / "server"))["socket"])
        assert len(os.fsencode(socket)) <= 107
        assert tmp_path not in socket.parents
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        with connect("embedded", base_dir=base) as other:
            assert add(other) == 2
    gone(base)
    assert not socket.parent.exists()
    with user(base, add):
        socket = Path(guardian.read_record(str(base / ".emq" / "server"))["socket"])
    gone(base)
    assert not socket.parent.exists()


@pytest.mark.parametrize("name", ["with space", 'quo"te', "back\\slash", "apo'strophe", "ünï", "#hash", "-dash"])
def test_any_folder_name(tmp_path: Path, name: str) -> None:
    with connect(f"embedded:{name}", base_dir=tmp_path) as server:
        assert add(server) == 1
    with connect(f"embedded:{name}", base_dir=tmp_path) as server:
        assert add(server) == 2
    assert (tmp_path / name / "server" / "appendonlydir").is_dir()


def test_a_copied_folder_is_a_server_of_its_own(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    with connect("embedded", base_dir=first) as server:
        assert add(server) == 1
        shutil.copytree(first, second, ignore=shutil.ignore_patterns("s"))
        with connect("embedded", base_dir=second) as copy:
            assert copy.run_id("mail") != server.run_id("mail")
            assert add(copy) == 2
        assert server.read("HGET", KEY, "n") == b"1"


def test_a_moved_folder_goes_on(tmp_path: Path) -> None:
    with connect("embedded", base_dir=tmp_path / "a") as server:
        assert add(server) == 1
    os.rename(tmp_path / "a", tmp_path / "b")
    with connect("embedded", base_dir=tmp_path / "b") as server:
        assert add(server) == 2


def test_damaged_data_is_told_not_overwritten(tmp_path: Path) -> None:
    with connect("embedded", base_dir=tmp_path) as server:
        for _ in range(10):
            add(server)
    folder = tmp_path / ".emq" / "server" / "appendonlydir"
    [file] = folder.glob("*.incr.aof")
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20] = b"?" * 20
    file.write_bytes(data)
    with pytest.raises(UnreachableError, match=r"did not start:.*AOF.*server\.log"):
        connect("embedded", base_dir=tmp_path)
    assert file.read_bytes() == data
    gone(tmp_path)


def test_a_folder_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / ".emq").write_text("a file")
    with pytest.raises(UnreachableError, match="can't use the folder"):
        connect("embedded", base_dir=tmp_path)


def test_no_program(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such program"):
        connect("embedded", ConnectionOptions(server_binary="no-such-server"), base_dir=tmp_path)
    with pytest.raises(UnreachableError, match="did not start"):
        connect("embedded", ConnectionOptions(server_binary="/bin/false"), base_dir=tmp_path)
    assert find_binary().endswith("valkey-server")


def test_debians_redis(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None:
        assert "EMQ_OPS_CI" not in os.environ, "CI installs redis-server"
        pytest.skip("no redis-server on PATH")
    options = ConnectionOptions(server_binary="redis-server")
    with connect("embedded", options, base_dir=tmp_path) as server:
        q = Queue(server, "mail")
        assert server.info("mail", "server").get("redis_version", "").startswith("7.")
        assert enqueue(q, mint(), b"x")
        assert claim(q, 60_000) is not None
        assert enqueue(q, mint(), b"x")
    with connect("embedded", options, base_dir=tmp_path) as server:
        now = counts(Queue(server, "mail"))
        assert (now.pending, now.active) == (1, 1)
    gone(tmp_path)
