"""PostgreSQL behind TLS, verified by `ca`: libpq itself lets nobody in whose certificate or name is another's.

The server in the wheel is built without TLS, so a front of ours speaks it, as pgbouncer or a cloud's proxy would.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from emq_ops.config.loader import load
from emq_ops.config.wiring import Wiring
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.errors import UnreachableError
from tests.support.postgres import Postgres
from tests.support.tls import make_certificates

_ASKS_FOR_TLS = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


class Front:
    """Takes connections on a port of 127.0.0.1 and hands them to the socket in `folder`; without a `context` it
    refuses TLS, as a plain server does. `clear`: what came that was not encrypted."""

    def __init__(self, folder: str, context: ssl.SSLContext | None) -> None:
        self._path, self._context = f"{folder}/.s.PGSQL.5432", context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.clear = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._one, args=(self._socket.accept()[0],), daemon=True).start()

    def _one(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if client.recv(8, socket.MSG_WAITALL) != _ASKS_FOR_TLS:
                self.clear += 1
                return
            client.sendall(b"S" if self._context else b"N")
            if self._context is None:
                self.clear += len(client.recv(1))
                return
            with self._context.wrap_socket(client, server_side=True) as inside, socket.socket(socket.AF_UNIX) as server:
                server.connect(self._path)
                threading.Thread(target=_pump, args=(server, inside), daemon=True).start()
                _pump(inside, server)

    def close(self) -> None:
        self._socket.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def fronted(url: str, context: ssl.SSLContext | None) -> Iterator[Front]:
    front = Front(parse_qs(urlsplit(url).query)["host"][0], context)
    try:
        yield front
    finally:
        front.close()


def wired(folder: Path, front: Front, database: str, ca: Path, host: str) -> Wiring:
    file = folder / "config.yaml"
    url = f"postgresql://postgres@{host}:{front.port}/{database}?connect_timeout=5"
    file.write_text(f"state: {{url: '{url}', ca: '{ca}'}}\n")
    return Wiring.of(load([file], {}))


def test_a_server_is_believed_by_its_authority_and_name(tmp_path: Path, postgres: Postgres) -> None:
    ours, others = tmp_path / "ours", tmp_path / "others"
    elsewhere = tmp_path / "elsewhere"
    for folder in (ours, others, elsewhere):
        folder.mkdir()
    mine, theirs = make_certificates(ours), make_certificates(others)
    named_otherwise = make_certificates(elsewhere, here=False)
    url = postgres.fresh()
    database = urlsplit(url).path.strip("/")
    with fronted(url, mine.server_context()) as front:
        with open_ledger(wired(tmp_path, front, database, mine.ca, "localhost").state_url):
            pass
        with (
            pytest.raises(UnreachableError, match="certificate verify failed"),
            open_ledger(wired(tmp_path, front, database, theirs.ca, "localhost").state_url),
        ):
            pass
        assert front.clear == 0
    with (
        fronted(url, named_otherwise.server_context()) as front,
        pytest.raises(UnreachableError, match="does not match host name"),
        open_ledger(wired(tmp_path, front, database, named_otherwise.ca, "localhost").state_url),
    ):
        pass


def test_a_server_without_tls_gets_nothing(tmp_path: Path, postgres: Postgres) -> None:
    certificates = make_certificates(tmp_path)
    url = postgres.fresh()
    with fronted(url, None) as front:
        wiring = wired(tmp_path, front, urlsplit(url).path.strip("/"), certificates.ca, "localhost")
        with pytest.raises(UnreachableError, match="server does not support SSL"), open_ledger(wiring.state_url):
            pass
        assert front.clear == 0
