"""What an archive holds, read without its own code: plain JSON, pyarrow and SQL, and the replies of XADD beside it."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import struct
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

Pairs = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, order=True)
class Seen:
    """One record, wherever it was found."""

    ms: int
    seq: int
    pairs: Pairs

    @classmethod
    def of(cls, stream_id: str | bytes, flat: Iterable[bytes]) -> Seen:
        text = stream_id.decode() if isinstance(stream_id, bytes) else stream_id
        ms, seq = text.split("-")
        values = list(flat)
        return cls(int(ms), int(seq), tuple(zip(values[::2], values[1::2], strict=True)))


class Bucket:
    """Reads objects of an archive: `get` answers an object's bytes, `names` all keys below a prefix."""

    def __init__(self, get: Callable[[str], bytes], names: Callable[[str], list[str]]) -> None:
        self.get, self.names = get, names

    @classmethod
    def folder(cls, root: Path) -> Bucket:
        def names(prefix: str) -> list[str]:
            folder = root / prefix.rpartition("/")[0]
            files = (p.relative_to(root).as_posix() for p in folder.rglob("*") if p.is_file())
            return sorted(n for n in files if n.startswith(prefix))

        return cls(lambda key: (root / key).read_bytes(), names)

    @classmethod
    def s3(cls, client: Any, bucket: str, prefix: str = "") -> Bucket:
        def names(below: str) -> list[str]:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + below)
            return sorted(o["Key"][len(prefix) :] for page in pages for o in page.get("Contents", ()))

        return cls(lambda key: client.get_object(Bucket=bucket, Key=prefix + key)["Body"].read(), names)

    def commits(self, queue: str, stream: str) -> list[dict[str, Any]]:
        """The log, its numbers without a gap and its chain of hashes checked."""
        folder = f"log/{quote(queue, safe='')}/{quote(stream, safe='')}/"
        found = [key for key in self.names(folder) if len(key) == len(folder) + 25]
        out, previous = [], ""
        for number, key in enumerate(sorted(found), 1):
            body = self.get(key)
            commit = json.loads(body)
            assert key == f"{folder}{number:020d}.json", "the log has a gap"
            assert commit["lsn"] == number
            assert commit["previous"] == previous, f"the chain breaks at {number}"
            previous = hashlib.sha256(body).hexdigest()
            out.append(commit)
        return out

    def segments(self, queue: str, stream: str) -> list[dict[str, Any]]:
        """Those that the log says are in the archive."""
        live: dict[str, dict[str, Any]] = {}
        for commit in self.commits(queue, stream):
            for gone in commit.get("remove", ()):
                live.pop(gone["key"] if isinstance(gone, dict) else gone[1], None)
            for told in commit.get("add", ()):
                live[told["key"]] = told
        return list(live.values())

    def records(self, queue: str, stream: str) -> list[Seen]:
        """Every record of every committed segment, in order; one that is there twice comes twice."""
        out: list[Seen] = []
        for told in self.segments(queue, stream):
            body = self.get(told["key"])
            assert hashlib.sha256(body).hexdigest() == told["sha256"], told["key"]
            table = pq.read_table(io.BytesIO(body)).to_pydict()
            assert len(table["ms"]) == told["records"]
            out += [
                Seen(ms, seq, tuple((f["name"], f["value"]) for f in fields))
                for ms, seq, fields in zip(table["ms"], table["seq"], table["fields"], strict=True)
            ]
        return sorted(out)


def local_records(url: str, queue: str, stream: str, *, kind: str = "stream") -> tuple[list[Seen], list[Seen]]:
    """Every record of a local database, and those of them that it calls shipped; in order."""
    sql = (
        "SELECT c.body, c.lsn FROM archive_chunks c JOIN archive_streams s ON s.id = c.stream_id "
        "WHERE s.queue = {0} AND s.stream = {0} AND s.kind = {0}"
    )
    rows: list[tuple[bytes, int | None]]
    if url.startswith("sqlite:///"):
        with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30) as lite:
            rows = lite.execute(sql.format("?"), (queue, stream, kind)).fetchall()
        lite.close()
    else:
        with psycopg.connect(url) as connection:
            rows = [(bytes(b), n) for b, n in connection.execute(sql.format("%s"), (queue, stream, kind)).fetchall()]
    everything: list[Seen] = []
    shipped: list[Seen] = []
    for body, lsn in rows:
        found = decode_chunk(body)
        everything += found
        if lsn is not None:
            shipped += found
    return sorted(everything), sorted(shipped)


def decode_chunk(stored: bytes) -> list[Seen]:
    """A stored chunk by the words of ``archive/README.md``."""
    tag, size = struct.unpack_from("<BQ", stored)
    body = stored[9:] if tag == 0 else pa.decompress(stored[9:], decompressed_size=size, codec="zstd", asbytes=True)
    records, pairs = struct.unpack_from("<QQ", body)
    at = 16

    def column(code: str, count: int) -> array[int]:
        nonlocal at
        values = array(code)
        values.frombytes(body[at : at + count * values.itemsize])
        at += count * values.itemsize
        return values

    ms, seq, counts = column("Q", records), column("Q", records), column("i", records)
    lengths = column("i", pairs), column("i", pairs)
    texts: list[list[bytes]] = []
    for side in lengths:
        cut = []
        for length in side:
            cut.append(body[at : at + length])
            at += length
        texts.append(cut)
    assert at == len(body)
    out, place = [], 0
    for i in range(records):
        taken = slice(place, place + counts[i])
        out.append(Seen(ms[i], seq[i], tuple(zip(texts[0][taken], texts[1][taken], strict=True))))
        place += counts[i]
    return out
