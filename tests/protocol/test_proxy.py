"""The fault proxies do what they say, against a real Valkey and a real HTTP server."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.http_proxy import HttpProxy, creates
from tests.support.proxy import RespProxy, anything, named, writes
from tests.support.valkey import Valkey


@pytest.fixture
def proxy(valkey: Valkey) -> Iterator[RespProxy]:
    with valkey.client() as admin:
        admin.flushall()
    with RespProxy(valkey.url) as opened:
        yield opened


def client(proxy: RespProxy, timeout: float = 5) -> redis.Redis:
    return redis.Redis.from_url(proxy.url, protocol=2, socket_timeout=timeout, retry=Retry(NoBackoff(), 0))


def test_counts_and_forwards_pipelines_and_binary_values(proxy: RespProxy, valkey: Valkey) -> None:
    with client(proxy) as c:
        pipe = c.pipeline(transaction=True)
        for i in range(50):
            pipe.set(f"k{i}", b"\x00\r\n*3$" * i)
        pipe.execute()
        assert c.get("k49") == b"\x00\r\n*3$" * 49
    assert proxy.count(named("SET")) == 50
    assert proxy.count(writes) == 52  # with MULTI and EXEC


@pytest.mark.parametrize(
    ("kind", "done"), [("cut_before", 2), ("cut_after", 3), ("drop_reply", 3), ("half_reply", 3), ("answer", 2)]
)
def test_harm_at_the_third_write(proxy: RespProxy, valkey: Valkey, kind: str, done: int) -> None:
    fault = proxy.arm(kind, at=3, body=b"-LOADING not yet\r\n")
    with client(proxy, timeout=0.3) as c:
        c.incr("n")
        c.get("n")
        c.incr("n")
        with pytest.raises(redis.RedisError):
            c.incr("n")
        assert fault.fired == 1
        assert int(c.get("n")) == done  # type: ignore[arg-type]
        assert c.incr("n") == done + 1


def test_kills_a_process_at_a_request(proxy: RespProxy) -> None:
    code = f"import redis; c = redis.Redis.from_url({proxy.url!r}, protocol=2)\nwhile 1: c.incr('n')"
    child: list[subprocess.Popen[bytes]] = []
    proxy.arm("kill_after", at=7, pid=lambda: child[0].pid)
    child.append(subprocess.Popen([sys.executable, "-c", code]))
    assert child[0].wait(20) == -9
    with client(proxy) as c:
        assert c.get("n") == b"7"


def test_holds_until_released(proxy: RespProxy) -> None:
    fault = proxy.arm("hold", match=named("SET"))
    with client(proxy) as c, client(proxy) as other:
        thread = threading.Thread(target=lambda: c.set("k", 1))
        thread.start()
        fault.wait()
        assert other.get("k") is None
        fault.release()
        thread.join(20)
        assert other.get("k") == b"1"


def test_outage_and_end_of_it(proxy: RespProxy) -> None:
    with client(proxy) as c:
        c.ping()
        proxy.down()
        with pytest.raises(redis.ConnectionError):
            c.ping()
        proxy.up()
        assert c.ping()


def test_pubsub_and_blocking_pops_pass(proxy: RespProxy, valkey: Valkey) -> None:
    with client(proxy) as c, valkey.client() as direct:
        sub = c.pubsub()
        sub.subscribe("ch")
        assert sub.get_message(timeout=5)["type"] == "subscribe"  # type: ignore[index]
        direct.publish("ch", "hi")
        assert sub.get_message(timeout=5)["data"] == b"hi"  # type: ignore[index]
        sub.close()
        direct.rpush("l", "x")
        assert c.blpop(["l"], 5) == (b"l", b"x")
        # A client that gives up on a blocking pop is gone for the server too: nothing is popped for it.
        with client(proxy, timeout=0.2) as hasty, pytest.raises(redis.TimeoutError):
            hasty.blpop(["l"], 30)
        deadline = time.monotonic() + 20
        while direct.info("clients")["blocked_clients"]:
            assert time.monotonic() < deadline
        direct.rpush("l", "y")
        assert direct.llen("l") == 1


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stored: dict[str, bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.stored[self.path] = body
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # clients are cut here on purpose


@pytest.fixture
def http_proxy() -> Iterator[HttpProxy]:
    _Echo.stored = {}
    server = _Server(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    with HttpProxy(f"http://127.0.0.1:{server.server_port}") as opened:
        yield opened
    server.shutdown()
    thread.join()
    server.server_close()


def put(proxy: HttpProxy, key: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.address[1], timeout=0.5)  # type: ignore[arg-type]
    try:
        connection.request("PUT", key, body, {k.replace("_", "-"): v for k, v in headers.items()})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_http_harm(http_proxy: HttpProxy) -> None:
    assert put(http_proxy, "/a", b"x" * 100_000, if_none_match="*", expect="100-continue") == (200, b"x" * 100_000)
    assert http_proxy.count(creates) == 1
    http_proxy.arm("answer", match=named("PUT"), status=503)
    status, body = put(http_proxy, "/b", b"x")
    assert (status, b"ServiceUnavailable" in body) == (503, True)
    assert "/b" not in _Echo.stored
    for kind, stored in [("cut_before", False), ("cut_after", True), ("drop_reply", True), ("half_reply", True)]:
        fault = http_proxy.arm(kind, match=anything)
        with pytest.raises((OSError, http.client.HTTPException)):
            put(http_proxy, f"/{kind}", b"y" * 1000)
        assert fault.fired == 1
        assert (f"/{kind}" in _Echo.stored) is stored
    http_proxy.arm("half_request", match=anything)
    with pytest.raises((OSError, http.client.HTTPException)):
        put(http_proxy, "/half", b"z" * 1000)
