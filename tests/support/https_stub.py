"""A strict https object store: refuses what many S3-compatible stores refuse, and remembers what it was sent."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path) -> tuple[Path, Path]:
    """A fresh self-signed certificate for 127.0.0.1: its file and its key's file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


class StrictStore:
    """Objects by path. `refused`: requests with a chunked encoding or a checksum header; `refuse_all`: answer every
    write with this code (status 400); `conditions` False: ignore If-None-Match, as old stores do."""

    def __init__(self, folder: Path) -> None:
        self.cert, key = certificate(folder)
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.refused = 0
        self.refuse_all: str | None = None
        self.conditions = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def _told(self) -> dict[str, str]:
                headers = {k.lower(): v for k, v in self.headers.items()}
                store.requests.append((self.command, self.path, headers))
                return headers

            def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def _error(self, status: int, code: str) -> None:
                self._answer(status, f"<Error><Code>{code}</Code><Message>{code} it is</Message></Error>".encode())

            def do_PUT(self) -> None:
                headers = self._told()
                body = self.rfile.read(int(headers.get("content-length", 0)))
                if "aws-chunked" in headers.get("content-encoding", "") or "x-amz-sdk-checksum-algorithm" in headers:
                    store.refused += 1
                    self._error(400, "InvalidArgument")
                elif store.refuse_all:
                    self._error(400, store.refuse_all)
                elif store.conditions and headers.get("if-none-match") == "*" and self.path in store.objects:
                    self._error(412, "PreconditionFailed")
                else:
                    store.objects[self.path] = body
                    self._answer(200, ETag='"x"')

            def do_GET(self) -> None:
                self._told()
                path = self.path.split("?")[0]
                if "list-type" in self.path:
                    self._answer(200, b"<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>")
                elif path in store.objects:
                    self._answer(200, store.objects[path])
                else:
                    self._error(404, "NoSuchKey")

        return Handler

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
