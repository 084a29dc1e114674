"""Nothing is sent on to where an answer points: the hosts that may be asked are those that the config names."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from emq_archive.remote import open_remote
from emq_ops.config.messenger import messenger_of, send
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import EmqError
from tests.support.collector import Collector


@pytest.fixture
def elsewhere() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


class Redirector(http.server.ThreadingHTTPServer):
    """Answers every request with `status` and the collector's address."""

    daemon_threads = True

    def __init__(self, status: int, to: Collector) -> None:
        self.asked = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked += 1
                self.send_response(status)
                self.send_header("Location", f"http://127.0.0.1:{to.port}{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_PUT = do_POST = do_HEAD = _answer

            def log_message(self, *_: object) -> None:
                """Nothing is told."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def redirector(request: pytest.FixtureRequest, elsewhere: Collector) -> Iterator[Redirector]:
    with Redirector(request.param, elsewhere) as server:
        yield server
        server.shutdown()


@pytest.mark.parametrize("redirector", [302, 307, 308], indirect=True)
@pytest.mark.parametrize("asked", ["", "?redirect=yes"])
def test_an_alert_is_not_sent_on(redirector: Redirector, elsewhere: Collector, asked: str) -> None:
    url = f"json://127.0.0.1:{redirector.server_port}/hook{asked}"
    assert not send(messenger_of(url), "a title", "a text")
    assert redirector.asked == 1
    assert elsewhere.connections == 0


@pytest.mark.parametrize("redirector", [301, 307], indirect=True)
def test_a_request_to_a_bucket_is_not_sent_on(redirector: Redirector, elsewhere: Collector) -> None:
    keys = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
    endpoint = f"http://127.0.0.1:{redirector.server_port}"
    remote = open_remote("s3://bucket/prefix", endpoint=endpoint, timeout_ms=2000, **keys)
    for call in (lambda: remote.get("a"), lambda: remote.list("a"), lambda: remote.create("a", b"payload")):
        with deadline(2), pytest.raises(EmqError):  # what a store answers oddly is tried again until then
            call()
    remote.close()
    assert redirector.asked >= 3
    assert elsewhere.connections == 0
