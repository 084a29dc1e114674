"""The folder of an embedded server: any name, copied, moved, damaged, not usable; and a machine without the program."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from emq_ops.protocol.connection import guardian
from emq_ops.protocol.connection.processes import find_binary
from emq_ops.protocol.errors import BadInputError, UnreachableError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import ConnectionOptions, connect
from emq_ops.protocol.transitions.claims import claim
from emq_ops.protocol.transitions.enqueue import enqueue
from emq_ops.protocol.transitions.reads import counts
from tests.protocol.connection.embedded import KEY, add, gone, user


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
