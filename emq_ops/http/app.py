"""The daemon's HTTP side: ``/healthz``, ``/metrics``, and ``/``, a page of its tasks."""

from __future__ import annotations

import hmac
import html
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from emq_ops.daemon.restrictions import format_span
from emq_ops.http import metrics
from emq_ops.protocol.errors import BadInputError, EmqError

Health = Callable[[], dict[str, Any]]
COLUMNS = ("queue", "task", "leader", "every", "last", "next", "late_ms", "runs", "missed", "failures", "error")
"""Of every page; a hold and a maintenance window get columns of their own while there are any."""


def make_app(health: Health, rows: metrics.Rows, token: str | None = None) -> Starlette:
    """`health` answers facts with ``ok``; `rows` the tasks. With `token` every page but ``/healthz`` wants it as a
    bearer token."""

    def refused(request: Request) -> Response | None:
        given = request.headers.get("authorization", "")
        if token is None or hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return None
        return PlainTextResponse("a bearer token is wanted\n", 401, {"WWW-Authenticate": "Bearer"})

    async def healthz(_request: Request) -> Response:
        facts = await run_in_threadpool(health)
        return JSONResponse(facts, 200 if facts.get("ok") else 503)

    async def metrics_page(request: Request) -> Response:
        no = refused(request)
        if no is not None:
            return no
        try:
            return Response(await run_in_threadpool(metrics.text, rows), media_type="text/plain; version=0.0.4")
        except EmqError as fault:
            return PlainTextResponse(f"{fault}\n", 503)

    async def page(request: Request) -> Response:
        no = refused(request)
        if no is not None:
            return no
        try:
            found = await run_in_threadpool(lambda: list(rows()))
        except EmqError as fault:
            return PlainTextResponse(f"{fault}\n", 503)
        return HTMLResponse(_page(found))

    return Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics_page), Route("/", page)])


def _page(rows: list[dict[str, Any]]) -> str:
    columns = COLUMNS + tuple(
        kind for kind in ("held", "maintenance") if any(row.get(f"{kind}_until_ms") for row in rows)
    )
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_shown(row, name))}</td>" for name in columns) + "</tr>" for row in rows
    )
    return (
        "<!doctype html><meta charset=utf-8><title>emq-ops</title>"
        "<style>body{font:14px sans-serif}td,th{padding:2px 10px;text-align:left}</style>"
        f"<h1>emq-ops</h1><table><tr>{head}</tr>{body}</table>"
    )


def _shown(row: dict[str, Any], name: str) -> str:
    if name in ("held", "maintenance"):
        until = row.get(f"{name}_until_ms")
        return "" if until is None else format_span(until, row[f"{name}_by"], row[f"{name}_why"])
    value = row.get(name)
    return "" if value is None else str(value)


class HttpServer:
    """Serves an app on ``address:port`` in a thread.

    Raises BadInputError for what is no address, EmqError for one that can't be listened on.
    """

    def __init__(self, listen: str, app: Starlette) -> None:
        host, _, port = listen.rpartition(":")
        if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
            raise BadInputError(
                f"'{listen}' is no address", where="http.listen", fix="address:port, e.g. 127.0.0.1:9119"
            )
        config = uvicorn.Config(app, host=host.strip("[]"), port=int(port), log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self.listen = listen
        self._socket = self._bind(host.strip("[]"), int(port))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="http", daemon=True)

    def _bind(self, host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            # It listens from here on: nobody is turned away, though the thread may still be starting.
            return socket.create_server((host, port), family=family)
        except (OSError, UnicodeError) as fault:
            raise EmqError(
                f"can't listen: {getattr(fault, 'strerror', None) or fault}",
                where=f"http.listen {self.listen}",
                fix="end what listens there, or name another address",
            ) from None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Ends answering."""
        self._server.should_exit = True
