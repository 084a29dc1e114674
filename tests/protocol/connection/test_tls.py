"""TLS that does not fit: each a clear error, and nothing is sent in the clear."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.protocol.errors import BadInputError, UnreachableError
from emq_ops.protocol.server import ConnectionOptions, connect
from tests.support.proxy import RespProxy
from tests.support.tls import Certificates, make_certificates
from tests.support.valkey import Valkey


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def port(valkey: Valkey, files: Certificates) -> Iterator[int]:
    """Of a TLS server that asks for no client certificate."""
    with RespProxy(valkey.url, tcp=True, tls=files.server_context()) as proxy:
        yield int(proxy.address[1])


def test_the_authority_must_be_known_unless_one_says_so(port: int, files: Certificates) -> None:
    with pytest.raises(UnreachableError, match=r"certificate.*ca="):
        connect(f"rediss://127.0.0.1:{port}")
    with connect(f"rediss://127.0.0.1:{port}?ca={files.ca}") as server:
        assert server.read("PING") == b"PONG"
    with connect(f"rediss://127.0.0.1:{port}?verify=no") as server:
        assert server.read("PING") == b"PONG"
    with connect(f"rediss://localhost:{port}", ConnectionOptions(ca=str(files.ca))) as server:
        assert server.read("PING") == b"PONG"


def test_the_host_must_stand_in_the_certificate(valkey: Valkey, tmp_path: Path) -> None:
    others = make_certificates(tmp_path, here=False)
    with RespProxy(valkey.url, tcp=True, tls=others.server_context()) as proxy:
        with pytest.raises(UnreachableError, match=r"not valid for '127\.0\.0\.1'.*host name"):
            connect(proxy.url, ConnectionOptions(ca=str(others.ca)))
        assert proxy.requests == []


def test_a_client_certificate_that_is_asked_for(valkey: Valkey, files: Certificates) -> None:
    context = files.server_context(ask_client=True)
    with RespProxy(valkey.url, tcp=True, tls=context) as proxy:
        with pytest.raises(UnreachableError):
            connect(proxy.url, ConnectionOptions(ca=str(files.ca)))
        assert proxy.requests == []
        options = ConnectionOptions(ca=str(files.ca), cert=str(files.client_cert), key=str(files.client_key))
        with connect(proxy.url, options) as server:
            assert server.read("PING") == b"PONG"


def test_tls_and_plain_do_not_meet(port: int, valkey: Valkey, files: Certificates) -> None:
    with pytest.raises(UnreachableError):
        connect(f"redis://127.0.0.1:{port}")
    with RespProxy(valkey.url, tcp=True) as plain, pytest.raises(UnreachableError, match="speaks TLS"):
        connect(plain.url.replace("redis:", "rediss:"), ConnectionOptions(ca=str(files.ca)))


def test_files_that_can_not_be_used(port: int, files: Certificates, tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    for options in (
        ConnectionOptions(ca=missing),
        ConnectionOptions(ca=str(files.ca), cert=missing),
        ConnectionOptions(ca=str(files.ca), cert=str(files.client_cert), key=missing),
    ):
        with pytest.raises(BadInputError, match=r"none\.pem: no such file"):
            connect(f"rediss://127.0.0.1:{port}", options)
    (tmp_path / "bad.pem").write_text("nothing")
    with pytest.raises(BadInputError, match=r"can't be used.*PEM"):
        connect(f"rediss://127.0.0.1:{port}", ConnectionOptions(ca=str(tmp_path / "bad.pem")))
    with pytest.raises(BadInputError, match=r"can't be used.*PEM"):
        connect(
            f"rediss://127.0.0.1:{port}", ConnectionOptions(ca=str(files.ca), cert=str(files.ca), key=str(files.key))
        )
    with pytest.raises(BadInputError, match="key without"):
        connect(f"rediss://127.0.0.1:{port}", ConnectionOptions(ca=str(files.ca), key=str(files.client_key)))


def test_tls_options_of_a_plain_url_are_a_mistake(files: Certificates) -> None:
    with pytest.raises(BadInputError, match="rediss://"):
        connect("redis://127.0.0.1:1", ConnectionOptions(ca=str(files.ca)))


def test_rotated_certificates_are_read_again(valkey: Valkey, tmp_path: Path) -> None:
    """Authority, server and client anew at once: the files are read by each connection, so nothing is restarted."""
    used, other = tmp_path / "used", tmp_path / "other"
    for folder in (used, other):
        folder.mkdir()
    now, then = make_certificates(used), make_certificates(other)
    with RespProxy(valkey.url, tcp=True, tls=now.server_context(ask_client=True)) as proxy:
        files = ConnectionOptions(ca=str(now.ca), cert=str(now.client_cert), key=str(now.client_key))
        with connect(f"rediss://127.0.0.1:{proxy.address[1]}", files) as server:
            assert server.read("PING") == b"PONG"
            proxy.tls = then.server_context(ask_client=True)
            with valkey.client() as admin:
                admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            with pytest.raises(UnreachableError, match="certificate"):
                server.read("PING")
            for path in other.iterdir():
                path.replace(used / path.name)
            assert server.read("PING") == b"PONG"
