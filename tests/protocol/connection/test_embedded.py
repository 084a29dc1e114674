"""The embedded server: started once, shared, survived by its data, gone when nobody uses it, whoever is killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from emq_ops.protocol.connection.processes import find_binary
from emq_ops.protocol.errors import OutcomeUnknownError, UnreachableError
from emq_ops.protocol.server import ConnectionOptions, connect
from tests.protocol.connection.embedded import KEY, add, alive, gone, guard_of, pid_of, user
from tests.support.cluster import until


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
