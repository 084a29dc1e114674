"""The doctor looks at all that the product rests on: archive, object store, state, disk."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from emq_archive.local.catalog import Catalog
from emq_archive.local.store import open_local
from emq_archive.model import StreamRef
from emq_ops.audit.doctor.foundations import LOW_BYTES, examine_disk, examine_rights
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.cli import emq
from tests.support.valkey import Valkey

REF = StreamRef("orders", "completions")
CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
queues: {{orders: {{streams: {{completions: {{keep: 1}}}}}}}}
"""


@pytest.fixture
def place(server: Server, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an archive of three records."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG.format(url=valkey.url))
    for number in range(1, 4):
        server.write("XADD", Queue(server, "orders").keys.stream("completions"), f"{number}-0", "job", "x")
    assert emq("archive", "fold", "orders", "completions").code == 0
    return tmp_path


def found() -> tuple[int, list[str]]:
    ran = emq("doctor", "--output", "json")
    return ran.code, [finding["kind"] for finding in json.loads(ran.out)["findings"]]


def test_a_healthy_archive_is_no_finding(place: Path) -> None:
    assert found() == (0, [])


def test_a_stream_that_is_marked_damaged(place: Path) -> None:
    with open_local("sqlite:///archive.db") as local:
        Catalog(local, REF).set(damage="3 segments are gone")
    assert found() == (2, ["archive_damaged"])


def test_a_lost_head_a_lost_segment_and_an_empty_bucket(place: Path) -> None:
    newest = max(Path("bucket/log").rglob("*.json"))
    kept = newest.read_bytes()
    newest.unlink()
    assert found() == (2, ["archive_head_missing"])
    newest.write_bytes(kept)
    [segment] = Path("bucket").rglob("*.parquet")
    segment.unlink()
    assert found() == (2, ["archive_damaged"])
    shutil.rmtree("bucket")
    code, kinds = found()
    assert (code, set(kinds)) == (2, {"archive_head_missing", "archive_damaged"})


def test_another_states_archive(place: Path) -> None:
    with open_local("sqlite:///archive.db") as local:
        Catalog(local, REF).set(state="0f0e0d0c-0000-0000-0000-000000000000")
    assert found() == (2, ["foreign_archive"])


def test_a_malformed_local_database(place: Path) -> None:
    for file in place.glob("archive.db*"):
        file.unlink()
    Path("archive.db").write_bytes(b"no database" * 1_000)
    assert found() == (2, ["archive_unreadable"])


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine_disk([tmp_path]) == []
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10 * LOW_BYTES, 9 * LOW_BYTES, LOW_BYTES - 1))
    [finding] = examine_disk([tmp_path / "not" / "made", tmp_path / "not" / "made"])
    assert (finding.kind, finding.detail) == ("disk_low", "99 MiB are free")


def test_a_database_that_others_may_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch(0o600)
    assert examine_rights([tmp_path / "state.db", tmp_path / "none"]) == []
    (tmp_path / "state.db").chmod(0o644)
    [finding] = examine_rights([tmp_path / "state.db"])
    assert (finding.kind, finding.detail) == ("open_file", "everybody may read it")
