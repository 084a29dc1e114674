"""A real proxy before a real server that counts requests and does harm at the k-th of them.

In front of Valkey (any ``unix://`` or ``redis://`` address), one request and one reply at a time, so that "the k-th
write" is the same one in every run::

    with RespProxy(valkey.url) as proxy, connect(proxy.url) as server:
        fault = proxy.arm("cut_after", at=3, match=writes)
        ...                                # the third write from here on is done, and its reply is lost
        assert fault.fired
        assert proxy.count(writes) == 5    # how many came in all

For an object store see ``http_proxy.HttpProxy``; faults and counting are the same.

What a fault can do (`kind`):

    cut_before    the request is not forwarded; the connection is cut
    cut_after     the request is forwarded and *done*; the connection is cut in place of the reply
    drop_reply    the same, but the connection stays open and silent: the client runs into its timeout
    half_reply    half of the reply, then the cut
    answer        not forwarded; `body` is the reply, e.g. ``b"-LOADING busy\\r\\n"``
    kill_before   SIGKILL to `pid` (a number, or a callable that answers one); then as cut_before
    kill_after    the request is done, then SIGKILL to `pid`; then as cut_after
    delay         `seconds` pass before it is forwarded
    hold          it is forwarded when the test calls ``fault.release()``
    hold_reply    the request is done; its reply goes on when the test calls ``fault.release()`` (RESP only)

`at` counts the requests that `match`, over all connections, from the moment of arming; `times` is how many in a row
are hit from there on (a large number: all of them). `fault.wait()` blocks (bounded) until it fired. An outage:
``proxy.down()`` refuses and cuts everything until ``proxy.up()``. ``cut_all()`` just cuts what is open now.
Useful matches: `writes`, `named("BLPOP", ...)`, `scripted("sweep")`, `anything` (handshakes included).
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from typing import BinaryIO

from tests.support.faults import Cut, Fault, Match, Proxy, Request, anything, named, scripted, writes

__all__ = ["Fault", "Match", "Proxy", "Request", "RespProxy", "anything", "named", "scripted", "writes"]

STREAMING = {"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"}


class RespProxy(Proxy):
    """Before Valkey. A unix socket of its own, or with ``tcp=True`` a port on 127.0.0.1, or with `tls` (an
    ``ssl.SSLContext``) and ``tcp=True`` a TLS port, as a terminator in front of a plain server."""

    KINDS = (*Proxy.KINDS, "hold_reply")

    def exchange(self, client: socket.socket, upstream: socket.socket) -> None:
        with client.makefile("rb") as asked, upstream.makefile("rb") as answered:
            streaming = False
            while raw := read_frame(asked):
                words = read_words(raw)
                request = Request(words[0].decode("latin-1").upper(), words, raw)
                fault = self.decide(request)
                kind = fault.kind if fault else "pass"
                if fault and kind == "kill_before":
                    fault.kill()
                if kind in ("cut_before", "kill_before"):
                    return
                if fault and kind == "answer":
                    client.sendall(fault.body)
                    continue
                upstream.sendall(raw)
                if not streaming and request.name in STREAMING:
                    streaming = True  # from here on replies come unasked
                    self._spawn(_pump, upstream, client)
                if streaming:
                    if fault and kind == "kill_after":
                        fault.kill()
                        return
                    if kind in ("cut_after", "drop_reply", "half_reply"):
                        return
                    continue
                _await(upstream, client)
                reply = read_frame(answered)
                if reply is None:
                    return
                if fault and kind == "kill_after":
                    fault.kill()
                if kind in ("cut_after", "kill_after"):
                    return
                if kind == "drop_reply":
                    continue
                if fault and kind == "hold_reply":
                    fault.sit()
                if kind == "half_reply":
                    client.sendall(reply[: max(1, len(reply) // 2)])
                    return
                client.sendall(reply)


def _await(upstream: socket.socket, client: socket.socket) -> None:
    """Waits for a reply; raises Cut when the client goes first, so that the server sees that it went."""
    # A TLS socket can't be peeked into: there the end of the client shows when the reply is written.
    watched = [upstream] if isinstance(client, ssl.SSLSocket) else [upstream, client]
    while True:
        ready = select.select(watched, [], [])[0]
        if upstream in ready:
            return
        if not client.recv(1, socket.MSG_PEEK):
            raise Cut
        watched = [upstream]  # a pipeline's next request: it can wait


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


def read_frame(stream: BinaryIO) -> bytes | None:
    """The bytes of one whole RESP2 value, or None at the end of the stream."""
    head = stream.readline()
    if not head.endswith(b"\r\n"):
        return None
    kind, size = head[:1], int(head[1:]) if head[:1] in b"$*" else 0
    if kind == b"$" and size >= 0:
        body = stream.read(size + 2)
        return head + body if len(body) == size + 2 else None
    if kind == b"*":
        parts = [head]
        for _ in range(size):
            part = read_frame(stream)
            if part is None:
                return None
            parts.append(part)
        return b"".join(parts)
    return head


def read_words(raw: bytes) -> list[bytes]:
    """The words of a command: an array of bulk strings, as every client sends it."""
    words, position = [], raw.index(b"\r\n") + 2
    while position < len(raw):
        end = raw.index(b"\r\n", position)
        start, size = end + 2, int(raw[position + 1 : end])
        words.append(raw[start : start + size])
        position = start + size + 2
    return words
