"""The doctor looks at all that the product rests on: archive, object store, state, disk."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import namedtuple
from pathlib import Path

import pytest
from sqlalchemy import event

from emq_archive.local.catalog import Catalog
from emq_archive.local.store import open_local
from emq_archive.model import StreamRef
from emq_ops.audit.doctor.foundations import (
    LOW_BYTES,
    examine_clocks,
    examine_disk,
    examine_rights,
    examine_server,
    examine_state,
)
from emq_ops.daemon import clock
from emq_ops.ledger import marks
from emq_ops.ledger.ledger import open_ledger
from emq_ops.ledger.marks import TaskProgress
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.cli import emq
from tests.support.passing import until
from tests.support.postgres import Postgres
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


def test_a_state_of_an_earlier_day_under_a_newer_lease_and_log(place: Path, server: Server) -> None:
    """A backup was put back, of the state alone or of the keyspace too; the next run goes on above."""
    state, lease = Path("state.db"), keys_of("orders").lease
    with sqlite3.connect(state) as database:
        database.execute("update fencing_tokens set token = 0")
    assert found() == (2, ["state_behind", "state_behind"])
    assert "put back the newest backup" in emq("doctor").out
    server.write("DEL", lease)
    assert found() == (2, ["state_behind"])
    server.write("XADD", keys_of("orders").stream("completions"), "9-0", "job", "x")
    assert emq("archive", "fold", "orders", "completions").code == 0
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


def test_pages_of_zeros_in_the_state_or_the_archive(place: Path) -> None:
    """Each is a finding, and the rest is looked at all the same."""
    kinds = {"state.db": "state_unusable", "archive.db": "archive_unreadable"}
    for name in kinds:
        whole = Path(name).read_bytes()
        for from_page in range(2, len(whole) // 4096 - 1):
            Path(name).write_bytes(whole[: from_page * 4096] + bytes(4096) + whole[(from_page + 1) * 4096 :])
            code, seen = found()
            if seen:
                break
        assert (code, set(seen)) == (2, {kinds[name]})
        Path(name).write_bytes(whole)
    Path("state.db").write_bytes(b"no database" * 1_000)
    shutil.rmtree("bucket")
    code, seen = found()
    assert (code, {"state_unusable", "archive_head_missing"} - set(seen)) == (2, set())


def test_a_state_that_takes_no_writes(place: Path) -> None:
    with open_ledger("sqlite:///state.db") as ledger:
        assert examine_state(ledger) == []
        ledger.engine.dispose()
        event.listen(ledger.engine, "connect", lambda raw, _: raw.execute("PRAGMA query_only=1"))
        [finding] = examine_state(ledger)
    assert finding.kind == "state_unusable"


def test_a_postgresql_that_takes_no_writes(postgres: Postgres) -> None:
    with open_ledger(postgres.fresh()) as ledger:
        assert examine_state(ledger) == []
        assert ledger.clock_ms() is not None
        event.listen(ledger.engine, "begin", lambda c: c.exec_driver_sql("SET TRANSACTION READ ONLY"))
        [finding] = examine_state(ledger)
    assert (finding.kind, "read-only" in finding.detail) == ("state_unusable", True)


def test_a_queue_that_another_state_leads(place: Path, server: Server) -> None:
    fields = {"state": "0f0e0d0c-0000-0000-0000-000000000000", "token": "9", "role": "daemon", "host": "elsewhere"}
    server.write("HSET", "emq-ops:{orders}:lease", *(word for pair in fields.items() for word in pair))
    ran = emq("doctor", "--output", "json")
    [finding] = [one for one in ran.json["findings"] if one["kind"] == "foreign_lease"]
    assert (ran.code, "emq-ops state take-over 0f0e0d0c" in finding["detail"]) == (2, True)


def test_nothing_runs(place: Path) -> None:
    """A task that ran, and then was due long ago."""
    assert emq("apply", "--yes").code == 0
    assert found() == (0, [])
    with open_ledger("sqlite:///state.db") as ledger:
        now = clock.now_ms()
        ran = TaskProgress("orders", "stream:completions", due_ms=now - 600_000, next_ms=now - 300_000, runs=1)
        marks.save(ledger, [ran])
    assert found() == (2, ["overdue"])


def test_a_server_that_is_away_or_can_not_write(place: Path, server: Server) -> None:
    shutil.rmtree("bucket/log")
    ran = emq("doctor", "-c", "config.yaml", "--url", "unix:///nowhere/at/all", "--output", "json")
    kinds = {finding["kind"] for finding in ran.json["findings"]}
    assert (ran.code, kinds) == (3, {"server_unreachable", "archive_head_missing"})
    assert examine_server(server) == []
    folder = server.read("CONFIG", "GET", "dir")[1]
    broken = Path(folder.decode()) / "dump.rdb"
    broken.mkdir()
    try:
        server.write("BGSAVE")
        until(lambda: bool(examine_server(server)))
        assert [finding.kind for finding in examine_server(server)] == ["server_not_durable"]
    finally:
        broken.rmdir()
        server.write("BGSAVE")
        until(lambda: examine_server(server) == [])


def test_clocks_that_are_apart() -> None:
    assert examine_clocks({"this host": 1_000_000, "redis://h": 1_004_000}) == []
    early, late = examine_clocks({"this host": 1_000_000, "redis://h": 990_000, "postgresql://p": 1_060_000})
    assert (early.detail, late.detail) == ("10 s behind this host", "60 s ahead of this host")


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
