"""The metadata service of a cloud's host (IMDSv2), as far as it hands out credentials."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

ROLE = "archivist"
TOKEN = "session-of-the-test"
LASTS = timedelta(hours=6)


class Metadata:
    """Hands out `key`, which may be changed at any time; `asked`: how often it did."""

    def __init__(self) -> None:
        self.key, self.asked = "", 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self._answer(TOKEN if self.path == "/latest/api/token" else None)

            def do_GET(self) -> None:
                where = "/latest/meta-data/iam/security-credentials/"
                if self.headers.get("x-aws-ec2-metadata-token") != TOKEN:
                    self.send_error(401)
                elif self.path == where:
                    self._answer(ROLE)
                else:
                    self._answer(service.credentials() if self.path == where + ROLE else None)

            def _answer(self, body: str | None) -> None:
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def credentials(self) -> str:
        """As the service tells them."""
        self.asked += 1
        now = datetime.now(UTC)
        return json.dumps(
            {
                "Code": "Success",
                "LastUpdated": f"{now:%Y-%m-%dT%H:%M:%SZ}",
                "Type": "AWS-HMAC",
                "AccessKeyId": self.key,
                "SecretAccessKey": "x",
                "Token": "of-the-role",
                "Expiration": f"{now + LASTS:%Y-%m-%dT%H:%M:%SZ}",
            }
        )

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
