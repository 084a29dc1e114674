"""The page in hostile hands: half requests, drip-fed bytes, foreign names, floods; and the passes beside them."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.http.app import Access, Pages, PageSources
from emq_ops.http.server import Bounds, HttpServer
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.daemons import site, wait_for
from tests.support.orders import config, lapsed
from tests.support.valkey import Valkey

DESCRIPTORS = 200
MANY = 300


def test_half_sent_requests_take_neither_descriptors_nor_passes_nor_the_log(
    tmp_path: Path, valkey: Valkey, server: Server
) -> None:
    text = config(valkey, max_stalled=5) + "http: {listen: '127.0.0.1:0'}\n"
    with site(tmp_path / "s", text) as here, contextlib.ExitStack() as opened:
        daemon = here.up("--apply")
        port = wait_for(lambda: daemon.events("http"))[0]["port"]
        pid = daemon.process.pid
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        before = len(os.listdir(f"/proc/{pid}/fd"))
        for _ in range(MANY):
            one = opened.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            with contextlib.suppress(OSError):
                one.send(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
        q = Queue(server, "orders")
        lapsed(server, 5)
        wait_for(lambda: reads.counts(q).pending == 5, why="a sweep beside half-sent requests")
        for n in range(5):
            server.write("XADD", q.keys.stream("completions"), f"{1_796_000_000_000 + n}-0", "job", f"j{n}")
        wait_for(lambda: server.read("XLEN", q.keys.stream("completions")) == 3, why="archived and trimmed beside them")
        assert len(os.listdir(f"/proc/{pid}/fd")) - before <= DESCRIPTORS // 2
        said = daemon.log.read_text()
        assert "Too many open files" not in said
        assert len(daemon.events("http_crowded")) == 1
        assert all(line.startswith("{") for line in said.splitlines())
        opened.close()
        wait_for(lambda: _status(port, "/livez") == 200)
        daemon.stop()


def _status(port: int, path: str) -> int | None:
    answer = _ask(port, path)
    return None if answer is None else answer.status


def _ask(port: int, path: str, **headers: str) -> http.client.HTTPResponse | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.body = answer.read()  # type: ignore[attr-defined]
    except (OSError, http.client.HTTPException):
        return None
    else:
        return answer
    finally:
        connection.close()


@contextlib.contextmanager
def _serving(facts: PageSources, access: Access, bounds: Bounds | None = None) -> Iterator[int]:
    served = HttpServer("127.0.0.1:0", Pages(facts, access), bounds=bounds or Bounds())
    served.start()
    try:
        yield served.port
    finally:
        served.stop()


FACTS = PageSources(lambda: {"ok": True, "faults": "of somebody's"}, list)
QUICK = Bounds(asking=0.5, idle=1, age=1.5)


def test_who_may_see_what_and_under_which_name() -> None:
    with _serving(FACTS, Access(token="s3cret")) as port:
        for path in ("/livez", "/readyz"):
            told = _ask(port, path, Host="any.example")
            assert told is not None
            assert (told.status, told.body) == (200, b"ok\n")  # type: ignore[attr-defined]
        assert _status(port, "/metrics") == _status(port, "/") == 401
        told = _ask(port, "/healthz")
        assert told is not None
        assert told.body == b'{"ok":true}'  # type: ignore[attr-defined]
        told = _ask(port, "/", Authorization="Bearer s3cret")
        assert told is not None
        assert told.status == 200
        said = {name.lower(): value for name, value in told.getheaders()}
        assert "default-src 'none'" in said["content-security-policy"]
        assert (said["x-content-type-options"], said["cache-control"]) == ("nosniff", "no-store")
        assert "server" not in said
        for wrong in ("Bearer s3cre", "Bearer s3cret ", "s3cret", "Bearer \xff"):
            refused = _ask(port, "/", Authorization=wrong.strip() + "x" if wrong.endswith(" ") else wrong)
            assert refused is not None
            assert refused.status == 401
    with _serving(FACTS, Access(token="s3cret", metrics_open=True, hosts=("ops.example",))) as port:
        assert _status(port, "/metrics") == 200
        assert _status(port, "/") == 401
    with _serving(FACTS, Access(hosts=("Ops.example",))) as port:
        for host, status in (
            *(("evil.example", 421), ("evil.example:80", 421), ("127.0.0.1.evil.example", 421), ("[::1", 421)),
            *(("localhost", 200), (f"127.0.0.1:{port}", 200), ("[::1]:9119", 200), ("ops.example:9119", 200)),
        ):
            told = _ask(port, "/", Host=host)
            assert told is not None
            assert told.status == status, host


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GE", id="half a word"),
        pytest.param(b"GET / HTTP/1.1\r\nX: ", id="half a header"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n\r\nx", id="a slow body"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n", id="a slow chunk"),
    ],
)
def test_drip_fed_requests_end_in_time(sent: bytes) -> None:
    with _serving(FACTS, Access(), QUICK) as port, socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(sent)
        one.settimeout(0.1)
        began = time.monotonic()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                if one.recv(4096) == b"":
                    break
            except TimeoutError:
                with contextlib.suppress(OSError):
                    one.send(b"1")  # never idle
            except OSError:
                break
        assert 0.3 < time.monotonic() - began < 9


def test_huge_headers_and_bodies_are_refused_and_nothing_is_written() -> None:
    with _serving(FACTS, Access()) as port:
        for head in (
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
                with contextlib.suppress(OSError):
                    one.sendall(head)
                reply = b""
                with contextlib.suppress(OSError):
                    reply = one.recv(4096)
                assert reply == b"" or reply.split()[1] in (b"431", b"413"), reply
                assert b"waitress" not in reply.lower()


def test_rows_are_read_once_however_many_ask() -> None:
    read = []

    def rows() -> list[dict[str, object]]:
        read.append(threading.current_thread().name)
        time.sleep(0.2)
        return []

    with _serving(PageSources(lambda: {"ok": True}, rows), Access()) as port:  # type: ignore[arg-type]
        asking = [threading.Thread(target=_status, args=(port, "/")) for _ in range(12)]
        for each in asking:
            each.start()
        for each in asking:
            each.join()
    assert 1 <= len(read) <= 2
