"""Segments that a stranger wrote: what would unpack to far more than any of ours is named, in whatever column it lies,
and whatever its footer says."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emq_archive.chunk import Chunk
from emq_archive.errors import DamagedArchiveError
from emq_archive.local import SqlStore
from emq_archive.local.catalog import Catalog
from emq_archive.log.commit import commit_key
from emq_archive.read.archive import Archive
from emq_archive.read.query import Query
from emq_archive.remote import open_remote
from emq_archive.segment import open_segment, row_groups, schema, write_segment
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.verify import verify
from tests.archive.making import REF, START_MS, archived, entry

ROWS = 50
LONG = "x" * 1_000_000
"""ROWS of these are 50 MB: packed some kilobytes, and more than the bound that the tests set."""
NAMES = {"use_dictionary": ["fields.list.element.name"]}
PREFIXED = {"use_dictionary": False, "column_encoding": {"job": "DELTA_BYTE_ARRAY"}}
PREFIXED_VALUES = {"use_dictionary": False, "column_encoding": {"fields.list.element.value": "DELTA_BYTE_ARRAY"}}


def bomb(column: str, **how: Any) -> bytes:
    """A segment whose every record has LONG in `column` (``name`` and ``value`` are those of its fields)."""
    pair = {"name": b"f", "value": b"v"}
    if column in pair:
        pair[column] = LONG.encode()
    ids = pa.array([START_MS + i for i in range(ROWS)], pa.uint64())
    columns = {
        "ms": ids,
        "seq": pa.array([0] * ROWS, pa.uint64()),
        "incarnation": pa.array([0] * ROWS, pa.int32()),
        "time": ids.cast(pa.int64()).cast(schema().field("time").type),
        "fields": pa.array([[pair]] * ROWS, schema().field("fields").type),
    }
    if column in ("job", "error"):
        columns[column] = pa.array([LONG] * ROWS, pa.string()).cast(schema().field(column).type)
    table = pa.table([columns.get(f.name, pa.nulls(ROWS, f.type)) for f in schema()], schema=schema())
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", store_schema=False, **how)
    assert len(out.getvalue()) < 20_000
    return out.getvalue()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emq_archive.pages.MAX_BYTES", 20_000_000)
    monkeypatch.setattr("emq_archive.pages._AT_ONCE", 3_000_000)


@pytest.mark.parametrize(
    ("column", "how"),
    [
        ("name", NAMES),
        ("value", {"use_dictionary": True}),
        ("value", {"use_dictionary": False}),
        ("value", PREFIXED_VALUES),
    ],
)
def test_no_field_of_a_record_unpacks_without_end(column: str, how: dict[str, Any]) -> None:
    with pytest.raises(DamagedArchiveError, match=r"segment the-key .*(unpacks? to more|none that emq-ops wrote)"):
        list(row_groups(open_segment(bomb(column, **how), "the-key"), "the-key"))


def test_what_a_footer_says_of_encodings_and_sizes_is_not_believed() -> None:
    """It says that values stand one after the other; the pages before it go by a dictionary."""
    body = bomb("value", use_dictionary=True)
    footer = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    lied = body[:footer] + body[footer:].replace(b"\x19\x35\x00\x06\x10", b"\x19\x35\x00\x06\x06")
    assert "RLE_DICTIONARY" not in pq.ParquetFile(io.BytesIO(lied)).metadata.row_group(0).column(12).encodings
    with pytest.raises(DamagedArchiveError, match="values that unpack to more than"):
        list(row_groups(open_segment(lied, "the-key"), "the-key"))


def planted(body: bytes, root: Path, local: SqlStore) -> None:
    """A whole archive whose one segment is `body`, its hash and size in the commit."""
    remote = open_remote(f"file:{root}")
    archived(local, remote, pages=1, each=5)
    [mine] = Catalog(local, REF).segments()
    (root / mine.key).unlink()
    digest = hashlib.sha256(body).hexdigest()
    key = f"{mine.key.rpartition('/')[0]}/{START_MS}-0-{START_MS + ROWS - 1}-0-{digest[:16]}.parquet"
    (root / key).write_bytes(body)
    path = root / commit_key(REF, 1)
    told = json.loads(path.read_bytes())
    first, last = f"{START_MS}-0", f"{START_MS + ROWS - 1}-0"
    said = {"key": key, "sha256": digest, "bytes": len(body), "records": ROWS, "first": first, "last": last}
    told["add"] = [{**told["add"][0], **said, "job_min": None, "job_max": None}]
    path.write_bytes(json.dumps(told).encode())


@pytest.mark.alike
def test_every_reader_names_it(new_local: Callable[[], SqlStore], tmp_path: Path) -> None:
    root = tmp_path / "bucket"
    planted(bomb("name", **NAMES), root, new_local())
    remote = open_remote(f"file:{root}")
    assert "unpack to more than" in verify(new_local(), remote, REF).faults[0]
    done = restore(new_local(), remote, REF, now_ms=START_MS)
    assert done.records == 0
    assert "unpack to more than" in done.holes[0]
    with pytest.raises(DamagedArchiveError, match="unpack to more than"):
        list(Archive(new_local(), remote, REF).read())


@pytest.mark.parametrize(
    ("column", "how"),
    [("error", {"use_dictionary": True}), ("job", {"use_dictionary": True}), ("job", PREFIXED)],
)
@pytest.mark.alike
def test_a_query_unpacks_no_column_without_end(
    new_local: Callable[[], SqlStore], tmp_path: Path, column: str, how: dict[str, Any]
) -> None:
    """Records are read without these columns, so only a query meets them."""
    root = tmp_path / "bucket"
    planted(bomb(column, **how), root, new_local())
    remote = open_remote(f"file:{root}")
    for where in ("", " WHERE ms > 5", f" WHERE {column} = 'x'"):
        with (
            Query(Archive(new_local(), remote, REF)) as query,
            pytest.raises(DamagedArchiveError, match=r"segment queue=.* unpack to more than"),
        ):
            list(query.run(f"SELECT max(length({column}::VARCHAR)) FROM records{where}")[1])
    with Query(Archive(new_local(), remote, REF)) as query:
        assert list(query.run("SELECT count(ms) FROM records")[1]) == [(ROWS,)]


@pytest.mark.parametrize("column", ["ms", "fields", "job"])
def test_a_segment_with_another_kind_of_column_is_named(column: str) -> None:
    columns = {f.name: pa.nulls(3, f.type) if f.nullable else pa.array([1, 2, 3], pa.int64()) for f in schema()}
    columns[column] = pa.array([1.5, 2.5, 3.5])
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    with pytest.raises(DamagedArchiveError, match="segment the-key lacks columns, or has others"):
        open_segment(out.getvalue(), "the-key")


def test_many_records_with_one_long_error_among_them_are_ours() -> None:
    """What could unpack to far more than the bound is measured, and does not."""
    errors = ["y" * 500_000 if i == 7 else "e" for i in range(2000)]
    entries = [entry(f"{START_MS + i}-0", "job", f"J{i}", "error", error) for i, error in enumerate(errors)]
    segment, body = write_segment(REF, 0, [Chunk.of(entries)])
    file = open_segment(body, segment.key)
    assert sum(len(part) for part in row_groups(file, segment.key)) == 2000
    assert file.read_row_group(0).num_rows == 2000
