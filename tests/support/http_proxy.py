"""The same harm for an HTTP upstream (an S3-compatible store): requests counted, faults at the k-th.

    with HttpProxy(moto_url) as proxy:
        store = open_store(..., endpoint=proxy.url)
        fault = proxy.arm("answer", at=2, match=named("PUT"), status=503, times=3)

Kinds as in ``proxy``, where: `answer` replies `status` with `body` (an S3 error document unless given);
`half_reply` sends the head and half of the body, then cuts; `cut_after` and `drop_reply` swallow the reply of a
request that was done. Beside them, `half_request` forwards half of the request's body, then cuts both sides.

Matches: `named("PUT")`, `creates` (create-only writes), `under("PUT", "/bucket/log/")`. Create-only writes are
forwarded one at a time (``serialise=False`` turns it off), since test stores check and write in two steps. `tls`: an
``ssl.SSLContext`` to serve https with.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from http import HTTPStatus
from typing import BinaryIO

from tests.support.proxy import Match, Proxy, Request


def creates(request: Request) -> bool:
    """Create-only writes."""
    return request.headers.get("if-none-match") == "*"


def under(method: str, prefix: str) -> Match:
    """Requests of `method` whose target begins with `prefix` (bucket and key, as they stand in the URL)."""
    return lambda request: request.name == method and request.words[1].startswith(prefix.encode())


class HttpProxy(Proxy):
    """Before an HTTP server, on a port of 127.0.0.1."""

    KINDS = (*Proxy.KINDS, "half_request")

    def __init__(self, upstream: str, *, serialise: bool = True, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(upstream, tcp=True, tls=tls)
        self._creates = threading.Lock() if serialise else None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.address[1]}"

    def exchange(self, client: socket.socket, upstream: socket.socket) -> None:
        with client.makefile("rb") as asked, upstream.makefile("rb") as answered:
            while (request := _read_request(asked, client)) is not None:
                if not self._one(request, client, upstream, answered):
                    return

    def _one(self, request: Request, client: socket.socket, upstream: socket.socket, answered: BinaryIO) -> bool:
        """One request and its reply; whether the connection goes on."""
        fault = self.decide(request)
        kind = fault.kind if fault else "pass"
        if fault and kind == "kill_before":
            fault.kill()
        if kind in ("cut_before", "kill_before"):
            return False
        if fault and kind == "answer":
            client.sendall(_error(fault.status, fault.body, request.name))
            return True
        if kind == "half_request":
            upstream.sendall(request.raw[: len(request.raw) - max(1, len(request.body) // 2)])
            return False
        with self._creates if self._creates and creates(request) else contextlib.nullcontext():
            upstream.sendall(request.raw)
            reply = _read_reply(answered, request.name)
        if reply is None:
            return False
        head, body, goes_on = reply
        if fault and kind == "kill_after":
            fault.kill()
        if kind in ("cut_after", "kill_after"):
            return False
        if kind == "drop_reply":
            client.recv(1)  # silent until the client gives up
            return False
        if kind == "half_reply":
            client.sendall(head + body[: len(body) // 2])
            return False
        client.sendall(head + body)
        return goes_on


def _read_head(stream: BinaryIO) -> tuple[bytes, dict[str, str]] | None:
    """The first line and the headers (names in lower case), or None at the end of the stream."""
    first = stream.readline()
    if not first:
        return None
    headers = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return first, headers


def _read_body(stream: BinaryIO, headers: dict[str, str]) -> bytes:
    """The body as it stands on the wire, with the frames of a chunked one."""
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return stream.read(int(headers.get("content-length", 0)))
    parts = []
    while True:
        size = stream.readline()
        parts += [size, stream.read(int(size.split(b";")[0], 16) + 2)]
        if int(size.split(b";")[0], 16) == 0:
            return b"".join(parts)


def _head(first: bytes, headers: dict[str, str]) -> bytes:
    return first + "".join(f"{k}: {v}\r\n" for k, v in headers.items()).encode("latin-1") + b"\r\n"


def _read_request(stream: BinaryIO, client: socket.socket) -> Request | None:
    found = _read_head(stream)
    if found is None:
        return None
    first, headers = found
    if headers.pop("expect", "").lower() == "100-continue":
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = _read_body(stream, headers)
    words = first.split()[:2]
    return Request(words[0].decode("latin-1"), words, _head(first, headers) + body, headers, body)


def _read_reply(stream: BinaryIO, method: str) -> tuple[bytes, bytes, bool] | None:
    """Head, body and whether the connection stays open after it."""
    found = _read_head(stream)
    if found is None:
        return None
    first, headers = found
    status = int(first.split()[1])
    if method == "HEAD" or status in (204, 304):
        body = b""
    elif "content-length" in headers or "transfer-encoding" in headers:
        body = _read_body(stream, headers)
    else:
        body = stream.read()  # until the server closes
    closes = headers.get("connection", "").lower() == "close" or first.startswith(b"HTTP/1.0")
    return _head(first, headers), body, not closes


def _error(status: int, body: bytes, method: str) -> bytes:
    phrase = HTTPStatus(status).phrase
    body = body or f"<Error><Code>{phrase.replace(' ', '')}</Code><Message>{phrase}</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/xml\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + (b"" if method == "HEAD" else body)
