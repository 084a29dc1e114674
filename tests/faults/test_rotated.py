"""Rotated secrets: what was refused is read again before the next try; what can't be read again says "restart"."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from emq_archive.errors import StoreRefusedError
from emq_archive.remote import open_remote
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.cli import emq
from tests.support.daemons import site, wait_for
from tests.support.faults import Request
from tests.support.http_proxy import HttpProxy
from tests.support.metadata import Metadata
from tests.support.postgres import Postgres
from tests.support.s3 import S3Server
from tests.support.valkey import Valkey

REFUSED = b"<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>"
OLD, NEW = "OLDKEY", "NEWKEY"
FOR_EVER = 1 << 30
CONFIG = """
server: {{url: "unix://{socket}", username: rotating, password: "${{VALKEY_PW}}"}}
state: {{url: "postgresql://rotating:${{PG_PW}}@/{database}?host={host}"}}
archive:
  local: "sqlite:///archive.db"
  remote:
    {{url: "s3://{bucket}/a", endpoint: "{endpoint}", access_key_id: "${{S3_ID}}", secret_access_key: "${{S3_PW}}"}}
  ship_after: 100ms
daemon: {{lease: 3s, backoff: 500ms}}
queues:
  orders: {{stalled: {{every: 200ms}}, streams: {{completions: {{every: 200ms}}}}}}
"""


def by(key: str) -> object:
    """Requests that are signed with this key."""

    def match(request: Request) -> bool:
        return f"Credential={key}/" in request.headers.get("authorization", "")

    return match


@contextlib.contextmanager
def role(postgres: Postgres, password: str) -> Iterator[psycopg.Connection]:
    """The role `rotating`, who needs its password (the others need none)."""
    rules = postgres.dir / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all rotating scram-sha-256\n{before}")
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute("SELECT pg_reload_conf()")
        if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'rotating'").fetchone():
            admin.execute("CREATE ROLE rotating SUPERUSER LOGIN")
        admin.execute(sql.SQL("ALTER ROLE rotating PASSWORD {}").format(password))
        try:
            yield admin
        finally:
            rules.write_text(before)
            admin.execute("SELECT pg_reload_conf()")


@pytest.fixture
def user(server: Server) -> Iterator[str]:
    server.write("ACL", "SETUSER", "rotating", "reset", "on", f">{OLD}", "~*", "&*", "+@all")
    yield "rotating"
    server.write("ACL", "DELUSER", "rotating")


def test_a_daemon_outlives_the_rotation_of_all_its_secrets(
    tmp_path: Path, valkey: Valkey, server: Server, postgres: Postgres, s3: S3Server, user: str
) -> None:
    files = {name: tmp_path / name for name in ("VALKEY_PW", "PG_PW", "S3_ID", "S3_PW")}
    for path in files.values():
        path.write_text(OLD + "\n")
    url, bucket = postgres.fresh(), s3.bucket()
    key = Queue(server, "orders").keys.stream("completions")
    with role(postgres, OLD) as admin, HttpProxy(s3.url) as store:
        config = CONFIG.format(
            socket=valkey.socket,
            database=url.rpartition("?")[0].rpartition("/")[2],
            host=str(postgres.dir).replace("/", "%2F"),
            bucket=bucket,
            endpoint=store.url,
        )
        with site(tmp_path / "site", config, {f"{name}_FILE": str(path) for name, path in files.items()}) as here:
            server.write("XADD", key, "1-0", "job", "a")
            here.run("apply", "--yes")
            daemon = here.up()
            wait_for(lambda: here.json("archive", "status", "orders", "completions")["remote_records"] == 1)
            # Rotated at once, and every session ended.
            fault = store.arm("answer", match=by(OLD), status=403, body=REFUSED, times=FOR_EVER)
            admin.execute(sql.SQL("ALTER ROLE rotating PASSWORD {}").format(NEW))
            server.write("ACL", "SETUSER", user, "resetpass", f">{NEW}")
            for path in files.values():
                path.write_text(NEW)
            server.write("CLIENT", "KILL", "USER", user)
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotating'")
            server.write("XADD", key, "2-0", "job", "b")
            wait_for(lambda: here.json("archive", "status", "orders", "completions")["remote_records"] == 2)
            assert fault.fired
            ended = len(daemon.events("pass_ended"))
            server.write("XADD", key, "3-0", "job", "c")
            wait_for(lambda: len(daemon.events("pass_ended")) > ended)
            wait_for(lambda: all(row["failures"] == 0 for row in here.json("ps")))
            daemon.stop()


def test_a_credentials_file_is_read_again(tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = tmp_path / "credentials"

    def write(key: str) -> None:
        credentials.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = x\n")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    write(OLD)
    with HttpProxy(s3.url) as store:
        remote = open_remote(f"s3://{s3.bucket()}/a", endpoint=store.url, region="us-east-1")
        remote.put("a", b"1")
        fault = store.arm("answer", match=by(OLD), status=403, body=REFUSED, times=FOR_EVER)
        with pytest.raises(StoreRefusedError, match="restart"):
            remote.put("a", b"2")
        write(NEW)
        remote.put("a", b"2")
        assert fault.fired
        assert remote.get("a") == b"2"
        remote.close()


@pytest.fixture
def metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Metadata]:
    """The metadata service of the host, as the only place that has credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with Metadata() as service:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        yield service


def test_credentials_of_the_host_s_metadata_are_read_again(s3: S3Server, metadata: Metadata) -> None:
    with HttpProxy(s3.url) as store:
        remote = open_remote(f"s3://{s3.bucket()}/a", endpoint=store.url, region="us-east-1")
        metadata.key = OLD
        remote.put("a", b"1")
        asked = metadata.asked
        remote.put("a", b"2")
        assert metadata.asked == asked  # hours before they expire, nobody asks again
        fault = store.arm("answer", match=by(OLD), status=403, body=REFUSED, times=FOR_EVER)
        metadata.key = NEW
        remote.put("a", b"3")
        assert fault.fired
        assert remote.get("a") == b"3"
        remote.close()


def test_what_can_not_be_read_again_says_restart(
    valkey: Valkey, server: Server, postgres: Postgres, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALKEY_PW", "wrong")
    config = tmp_path / "config.yaml"
    config.write_text(f'server: {{url: "unix://{valkey.socket}", username: {user}, password: "${{VALKEY_PW}}"}}\n')
    ran = emq("-c", str(config), "sweep", "orders")
    assert ran.code == 3
    assert "restart" in ran.err
    url = postgres.fresh()
    with role(postgres, OLD), pytest.raises(EmqError, match="restart"):
        open_ledger(url.replace("postgres@", "rotating:wrong@"))
    assert server.read("PING")
