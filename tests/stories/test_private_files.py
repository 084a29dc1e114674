"""Whatever the umask, what a command writes is for its user alone; a group reads it where the config says so."""

from __future__ import annotations

import grp
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol import files, ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.enqueue import enqueue
from emq_ops.worker import Consumer, ConsumerSettings
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///.emq/state.db"{group}}}
archive: {{local: "sqlite:///.emq/archive.db", remote: {{url: "file:.emq/bucket"}}}}
queues: {{orders: {{stalled: {{}}, dead: {{keep: 1}}, streams: {{completions: {{keep: 0, segment: 1KiB}}}}}}}}
"""
COMMANDS = (
    "plan --save plan.json",
    "apply --yes --allow-loss",
    "archive fold orders",
    "state backup backup.db",
    "state export export.jsonl",
    "import --out imported.yaml",
    "audit dead --html page.html",
    "sweep orders",
)
GROUP = next(group for group in grp.getgrall() if group.gr_gid != os.getgid())


@pytest.fixture(params=[pytest.param(0, id="umask 0"), pytest.param(0o022, id="umask 022", marks=pytest.mark.soak)])
def site(
    request: pytest.FixtureRequest, valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder, and a queue with a record to archive."""
    enqueue(Queue(server, "orders"), ids.mint(), b"x")
    Consumer(Queue(server, "orders"), lambda _: b"y" * 2_000, ConsumerSettings(cancel=False)).run(until_idle=True)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    before = os.umask(request.param)
    yield tmp_path
    os.umask(before)
    files.share_with(None)


def run_all(url: str, group: str) -> dict[str, tuple[str, int]]:
    """Mode and group of everything that the commands made."""
    Path("config.yaml").write_text(CONFIG.format(url=url, group=group))
    for command in COMMANDS:
        assert main(command.split()) in (0, 2), command
    made = [path for path in Path().rglob("*") if path.name != "config.yaml"]
    assert {"plan.json", "export.jsonl", "backup.db", "imported.yaml", "page.html"} <= {path.name for path in made}
    assert any(path.suffix == ".parquet" for path in made)
    return {str(path): (oct(path.stat().st_mode & 0o7777), path.stat().st_gid) for path in made}


def test_nobody_else_reads_what_is_written(site: Path, valkey: Valkey) -> None:
    for path, (mode, _) in run_all(valkey.url, "").items():
        assert mode == ("0o700" if Path(path).is_dir() else "0o600"), path


@pytest.mark.parametrize("named", [False, True], ids=["nobody", "a group"])
def test_what_an_earlier_version_left_open_is_tightened(site: Path, valkey: Valkey, named: bool) -> None:
    if named and os.geteuid() != 0:
        pytest.skip("needs to give files to a group that the user is not in")
    said = f", group: {GROUP.gr_name}" if named else ""
    run_all(valkey.url, said)
    opened = [Path(".emq"), Path(".emq/bucket"), *Path(".emq").glob("*.db*")]
    assert len(opened) >= 4
    for path in opened:
        path.chmod(0o777 if path.is_dir() else 0o666)
    assert main(["archive", "fold", "orders"]) == 0
    assert main(["history"]) == 0
    for path in opened:
        want = (0o770 if named else 0o700) if path.is_dir() else (0o660 if named else 0o600)
        assert oct(path.stat().st_mode & 0o7777) == oct(want), path


def test_what_is_somebody_elses_is_told(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    for mode, said in ((0o604, "everybody may read it"), (0o620, "may write it"), (0o600, None)):
        (tmp_path / "f").chmod(mode)
        found = files.loose(tmp_path / "f")
        assert found is None if said is None else said in str(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give files to a group that the user is not in")
def test_a_group_reads_it_where_the_config_says_so(site: Path, valkey: Valkey) -> None:
    for path, (mode, group) in run_all(valkey.url, f", group: {GROUP.gr_name}").items():
        assert mode == ("0o770" if Path(path).is_dir() else "0o660"), path
        assert group == GROUP.gr_gid, path


def test_a_group_that_is_not_there(site: Path, valkey: Valkey, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.yaml").write_text(CONFIG.format(url=valkey.url, group=", group: nobody-of-that-name"))
    assert main(["apply", "--yes", "--allow-loss"]) == 4
    assert "no group 'nobody-of-that-name'" in capsys.readouterr().err


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("thesis")
    (tmp_path / "planted").symlink_to("victim")
    with pytest.raises(FileExistsError):
        files.create_privately(tmp_path / "planted")
    files.write_privately(tmp_path / "planted", b"ours")
    assert (tmp_path / "victim").read_text() == "thesis"
    assert (tmp_path / "planted").read_bytes() == b"ours"
    assert not (tmp_path / "planted").is_symlink()


def test_a_demo_takes_no_folder_of_somebody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis").write_text("years of work")
    assert main(["demo", "--folder", str(tmp_path)]) == 4
    assert "not empty" in capsys.readouterr().err
    assert (tmp_path / "thesis").exists()
