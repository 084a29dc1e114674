"""What the README of the archive says, done by hand: its examples run, its formats are read without our code."""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path
from typing import Any

import duckdb
import pytest

from emq_archive.local import open_local
from emq_archive.model import Record, StreamRef
from emq_archive.remote import open_remote
from emq_ops.protocol.server import Server
from tests.archive.making import START_MS, add, settled, shipper
from tests.support.valkey import Valkey

TEXT = (Path(__file__).parents[2] / "archive" / "README.md").read_text("utf-8")


def example(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ref = StreamRef("q", "completions")
    with open_local("sqlite:///local.db") as local:
        ship = shipper(local, open_remote("file:bucket"), ref)
        for at in range(0, 60, 20):
            entries = [[e[0], [*e[1], b"tenant", b"t%d" % (at // 20)]] for e in settled(20, first=at)]
            add(local, entries, ref)
            ship.ship(now_ms=START_MS, force=True)
    return tmp_path / "bucket"


def test_duckdb_over_the_files_that_the_log_names(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bucket / "queue=q/stream=completions/date=2024-11-30/1-0-2-0-0.parquet").write_bytes(b"left by a killed process")
    names: dict[str, Any] = {}
    code = example("python", "read_parquet($files)").replace("outcome = 'dead'", "outcome = 'completed'")
    exec(code.replace("2026-01-01", "2024-01-01"), names)
    assert len(names["files"]) == 3
    assert "ok 0" in capsys.readouterr().out


def test_duckdb_by_the_manifest_alone(bucket: Path) -> None:
    with duckdb.connect() as connection:
        statements = example("sql", "getvariable").strip().split(";\n")
        connection.execute(statements[0])
        assert connection.execute(statements[1].rstrip(";")).fetchone() == (60,)
        tenant = re.search(r"`(list_filter.*?)`", TEXT)
        assert tenant is not None
        found = connection.execute(
            f"SELECT {tenant[1]} AS t, count(*) FROM read_parquet(getvariable('files')) GROUP BY t ORDER BY t"
        ).fetchall()
        assert found == [(b"t0", 20), (b"t1", 20), (b"t2", 20)]


def test_the_package_alone(
    server: Server, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for one in settled(12):
        server.write("XADD", "emq:{orders}:stream:completions", one[0], *one[1])
    exec(example("python", "Driver(").replace("redis://localhost", valkey.url), {})
    out = capsys.readouterr().out
    assert out.count("JOB") >= 10


@pytest.mark.parametrize("size", [0, 3, 255, 256, 70_000])
def test_the_hash_of_a_record(size: int) -> None:
    fields = ((b"id", b"x" * size), (b"", b"\xff"), (b"id", b"again"))
    texts = [text for pair in fields for text in pair]
    wide = size >= 256
    packed = bytes([4 if wide else 1, len(texts)])
    packed += b"".join(struct.pack("<I" if wide else "<B", len(text)) for text in texts) + b"".join(texts)
    wanted = hashlib.sha256(struct.pack(">QQ", 5, 18446744073709551615) + packed).digest()
    assert Record((5, 18446744073709551615), fields).hash == wanted
