"""A checkout with a planted folder of an embedded server: nothing that is not ours is removed, written or believed."""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol.connection import guardian
from emq_ops.protocol.errors import BadInputError, UnreachableError
from emq_ops.protocol.server import connect

CONFIG = "server: {url: embedded}\nqueues: {orders: {stalled: {}}}\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Somebody's folder with somebody's file."""
    folder = tmp_path / "victim"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "thesis").write_text("years of work")
    return folder


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Path]:
    """A folder under the temporary root, named as ours are, with a file that is not ours in it."""
    folder = Path(tempfile.mkdtemp(prefix="emq-"))
    (folder / guardian.OWNER).write_bytes(os.fsencode(tmp_path / ".emq" / "server"))
    (folder / "thesis").write_text("years of work")
    yield folder
    for entry in folder.iterdir():
        entry.unlink()
    folder.rmdir()


def plant(base: Path, **record: str) -> Path:
    """The folder as a checkout brings it."""
    folder = base / ".emq" / "server"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "server.pid").write_text(str(os.getpid()))
    return folder


def used(base: Path) -> None:
    """A server is started there, and stopped again."""
    with connect("embedded", base_dir=base) as server:
        assert server.read("PING") == b"PONG"


def test_a_record_removes_no_folder_of_somebody(tmp_path: Path, victim: Path) -> None:
    plant(tmp_path / "checkout", socket=str(victim / "s"), temporary=str(victim))
    used(tmp_path / "checkout")
    assert (victim / "deep" / "thesis").read_text() == "years of work"


def test_a_plan_of_a_checkout_removes_nothing(tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path / "checkout", socket=str(victim / "s"), temporary=str(victim))
    (tmp_path / "checkout" / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path / "checkout")
    assert main(["plan"]) == 2
    assert (victim / "deep" / "thesis").read_text() == "years of work"


def test_a_temporary_folder_with_files_of_others_stays(tmp_path: Path, short: Path) -> None:
    plant(tmp_path, socket=str(short / "s"), temporary=str(short))
    used(tmp_path)
    assert (short / "thesis").exists()


@pytest.mark.parametrize("how", ["a link", "another name", "readable", "elsewhere", "deeper", "of another server"])
def test_only_what_is_provably_ours_is_removed(tmp_path: Path, short: Path, how: str) -> None:
    (short / "thesis").unlink()
    (short / "s").touch()
    target = short
    if how == "of another server":
        (short / guardian.OWNER).write_text("/srv/.emq/server")
    if how == "a link":
        target = short.with_name("emq-" + secrets.token_hex(4))
        target.symlink_to(short)
    elif how == "another name":
        target = short.rename(short.with_name("emq-"))
    elif how == "readable":
        short.chmod(0o755)
    elif how == "elsewhere":
        target = tmp_path / "emq-12345678"
        target.mkdir(0o700)
    elif how == "deeper":
        target = short / "emq-12345678"
        target.mkdir(0o700)
    plant(tmp_path, socket=str(target / "s"), temporary=str(target))
    used(tmp_path)
    assert target.exists()
    assert (target / "s").exists() or how in ("elsewhere", "deeper")
    if how == "a link":
        target.unlink()
    elif how == "another name":
        target.rename(short)
    elif how == "deeper":
        target.rmdir()
    short.chmod(0o700)


def test_what_is_ours_is_removed(tmp_path: Path, short: Path) -> None:
    (short / "thesis").unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(short / "s"))
    plant(tmp_path, socket=str(short / "s"), temporary=str(short))
    used(tmp_path)
    assert not short.exists()
    short.mkdir(0o700)  # for its fixture


def make_writable(folder: Path) -> None:
    folder.chmod(0o775)


def link_log(folder: Path) -> None:
    (folder / "server.log").symlink_to(folder.parents[1] / "victim" / "deep" / "thesis")


def link_data(folder: Path) -> None:
    (folder / "appendonlydir").symlink_to(folder.parents[1] / "victim")


def link_lock(folder: Path) -> None:
    (folder / "users.lock").symlink_to(folder.parents[1] / "victim" / "made")


@pytest.mark.parametrize("spoil", [make_writable, link_log, link_data, link_lock])
def test_a_folder_that_others_may_write_or_that_leads_elsewhere_is_refused(
    tmp_path: Path, victim: Path, spoil: Callable[[Path], None]
) -> None:
    folder = plant(tmp_path)
    spoil(folder)
    with pytest.raises(BadInputError, match="embedded server") as caught:
        connect("embedded", base_dir=tmp_path)
    assert str(folder) in str(caught.value)
    assert caught.value.fix
    assert (victim / "deep" / "thesis").read_text() == "years of work"
    assert sorted(entry.name for entry in victim.iterdir()) == ["deep"]


def test_a_server_folder_that_is_a_link_is_refused(tmp_path: Path, victim: Path) -> None:
    (tmp_path / ".emq").mkdir()
    (tmp_path / ".emq" / "server").symlink_to(victim)
    with pytest.raises(BadInputError, match="a link"):
        connect("embedded", base_dir=tmp_path)
    assert sorted(entry.name for entry in victim.iterdir()) == ["deep"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = plant(tmp_path)
    os.chown(folder, 12345, 12345)
    with pytest.raises(BadInputError, match="somebody else"):
        connect("embedded", base_dir=tmp_path)


def test_a_record_leads_to_no_socket_of_somebody_else(tmp_path: Path, victim: Path) -> None:
    """While a server starts or ends, only its own socket is asked."""
    folder = plant(tmp_path, socket=str(victim / "s"))
    assert guardian.read_record(str(folder)) == {}


def test_folders_and_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with connect("embedded", base_dir=tmp_path) as server:
            server.write("SET", "k", "v")
    finally:
        os.umask(before)
    found = {entry: entry.stat().st_mode & 0o777 for entry in (tmp_path / ".emq").rglob("*")}
    assert (tmp_path / ".emq").stat().st_mode & 0o777 == 0o700
    assert {path.name: oct(mode) for path, mode in found.items() if mode & 0o077} == {}


@pytest.mark.parametrize("name", ["record.json", "server.pid"])
@pytest.mark.parametrize("how", ["a pipe", "nested", "huge"])
def test_a_planted_note_is_neither_waited_for_nor_believed(tmp_path: Path, name: str, how: str) -> None:
    folder = plant(tmp_path)
    (folder / name).unlink()
    if how == "a pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).write_text("[" * 200_000 if how == "nested" else "9" * 200_000)
    used(tmp_path)


def test_a_folder_in_the_place_of_the_record_is_one_line(tmp_path: Path) -> None:
    (plant(tmp_path) / "record.json").unlink()
    (tmp_path / ".emq" / "server" / "record.json").mkdir()
    with pytest.raises(UnreachableError, match="can't use the folder"):
        used(tmp_path)
