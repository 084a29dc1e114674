"""Files that we write: whole or not at all, and what is no regular file is left as it is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from emq_ops.daemon.notify import ReadyFile
from emq_ops.deploy.store import transfer
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.files import regular, written


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Stands for a device: /dev/null, /dev/stdout."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "f"

    def half() -> None:
        with written(target) as file:
            file.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert list(tmp_path.iterdir()) == []
    with written(target) as file:
        file.write("whole")
    assert target.read_text() == "whole"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [target]


def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with written(tmp_path / "link") as file:
        file.write("x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "x"


def test_an_export_into_a_pipe_goes_through_it(pipe: Path, tmp_path: Path) -> None:
    """As root a rename would put a file in the place of the device."""
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as ledger:
        transfer.export(ledger, pipe)
    reader.join(30)
    assert "identity" in got[0]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_backup_and_a_ready_file_take_no_device(pipe: Path, tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as ledger, pytest.raises(BadInputError, match="no file"):
        transfer.backup(ledger, pipe)
    with pytest.raises(BadInputError, match="a device or a pipe"):
        ReadyFile(pipe)
    with pytest.raises(BadInputError, match="a folder"):
        regular(tmp_path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
