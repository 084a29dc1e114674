"""What a query may do: for so long, with so much memory, on one view alone; and segments that go while it runs."""

from __future__ import annotations

import itertools
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_archive.local import SqlStore, open_local
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.read.query import Query, asked
from emq_archive.remote import open_remote
from emq_archive.remote.directory import DirectoryRemote
from emq_archive.upkeep.compact import expire
from emq_ops.protocol.errors import BadInputError, DeadlineError
from tests.archive.making import DAY_MS, REF, START_MS, archived, shipper
from tests.support.http_proxy import HttpProxy
from tests.support.https_stub import certificate
from tests.support.s3 import KEY, SECRET, S3Server


@pytest.fixture
def archive(local: SqlStore, remote: Remote) -> Archive:
    archived(local, remote, pages=3, each=5)
    return Archive(local, remote, REF)


def test_it_ends_in_time(archive: Archive) -> None:
    begun = time.monotonic()
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range % 7 = b.range % 11"
    with Query(archive, seconds=0.5) as query, pytest.raises(DeadlineError, match="longer than it may"):
        list(query.run(endless)[1])
    assert time.monotonic() - begun < 30


def test_it_takes_no_more_memory_than_it_may(archive: Archive) -> None:
    large = "SELECT count(*) FROM (SELECT DISTINCT repeat(range::VARCHAR, 50) FROM range(3000000))"
    with Query(archive, memory="64MiB") as query, pytest.raises(BadInputError, match="more memory"):
        list(query.run(large)[1])


@pytest.mark.alike
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY records TO '/tmp/emq-ops-leak.csv'",
        "INSTALL httpfs",
        "SET memory_limit = '99GB'",
        "ATTACH '/tmp/emq-ops-other.db'",
    ],
)
def test_it_sees_the_view_alone(archive: Archive, sql: str) -> None:
    with Query(archive) as query, pytest.raises(BadInputError):
        list(query.run(sql)[1])


def test_segments_that_expire_while_it_runs_are_left_out(new_local: Callable[[], SqlStore], tmp_path: Path) -> None:
    local, root = new_local(), tmp_path / "bucket"
    archived(local, open_remote(f"file:{root}"), pages=2, each=5, step_ms=DAY_MS // 8)
    other = new_local()

    class Going(DirectoryRemote):
        """Another host lets the first day go once the query knows its segments."""

        gone = 0

        def sizes(self, keys: object) -> dict[str, int]:
            found = super().sizes(keys)  # type: ignore[arg-type]
            if not self.gone:
                writer = shipper(other, open_remote(f"file:{root}"))
                writer.log.read()
                for _ in range(2):  # the second deletes what the first let go
                    done = expire(writer, now_ms=START_MS + DAY_MS, older_than_ms=DAY_MS // 2, grace_ms=0)
                    self.gone += done.records
            return found

    remote = Going(root)
    archive = Archive(new_local(), remote, REF)
    archive.holes = []
    with asked(archive, "SELECT count(*) FROM records") as (_, rows):
        [(count,)] = list(rows)
    assert remote.gone > 0
    assert count == 10 - remote.gone
    assert archive.holes == []


def test_the_certificate_authority_of_the_store_holds_for_queries_too(tmp_path: Path, s3: S3Server) -> None:
    def new_local() -> SqlStore:
        return open_local(f"sqlite:///{tmp_path}/{next(numbers)}.db")

    numbers = itertools.count()
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with HttpProxy(s3.url, tls=context) as proxy:
        keys = {"access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}
        remote = open_remote(f"s3://{s3.bucket()}/a", endpoint=proxy.url, ca=str(cert), **keys)
        archived(new_local(), remote, pages=2, each=5)
        with asked(Archive(new_local(), remote, REF), "SELECT count(*) FROM records") as (_, rows):
            assert list(rows) == [(10,)]
        remote.close()
