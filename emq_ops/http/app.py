"""What the daemon's HTTP side returns: ``/livez``, ``/readyz``, ``/healthz``, ``/metrics``, and ``/``, a page of tasks.

A WSGI application. Whoever asks costs little: what is read from server and state is read once a second at most, by one
thread, however many ask.
"""

from __future__ import annotations

import hmac
import html
import ipaddress
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from emq_ops.daemon.restrictions import format_span
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import EmqError

COLUMNS = ("queue", "task", "leader", "every", "last", "next", "late_ms", "runs", "missed", "failures", "error")
"""Of every page; a hold and a maintenance window get columns of their own while there are any."""
HEADERS = (
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
FRESH_SECONDS = 1.0
READ_SECONDS = 5.0
"""A page that was not read within is given up: its thread is wanted."""
OPEN = ("/livez", "/readyz")
"""Tell a status and nothing else, to anybody."""

Environ = dict[str, Any]
Rows = Callable[[], Iterable[dict[str, Any]]]
StartResponse = Callable[..., Any]


@dataclass(frozen=True)
class Access:
    """Who may see what. `token`: the bearer token of every page but `OPEN`, None: none is asked for; `metrics_open`:
    ``/metrics`` asks for none; `hosts`: names that a request's Host may have, beside addresses and ``localhost``."""

    token: str | None = None
    metrics_open: bool = False
    hosts: tuple[str, ...] = ()

    def knows_host(self, host: str) -> bool:
        """A page of another site whose name was made to mean this address (DNS rebinding) asks by that name."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower().rstrip(".") in ("localhost", *(each.lower() for each in self.hosts))
        return True

    def holds_token(self, environ: Environ) -> bool:
        """Whether the request has the token, or none is asked for."""
        given = str(environ.get("HTTP_AUTHORIZATION", ""))
        return self.token is None or hmac.compare_digest(
            given.encode("latin-1", "replace"), f"Bearer {self.token}".encode()
        )


@dataclass(frozen=True)
class PageSources:
    """Where pages come from. `health`: facts with ``ok``; `rows`: tasks; `alive`: whether the daemon's loop turns;
    `metrics`: type and body of ``/metrics`` for what a request accepts."""

    health: Callable[[], dict[str, Any]]
    rows: Rows
    alive: Callable[[], bool] = lambda: True
    metrics: Callable[[str], tuple[str, bytes]] = lambda _accept: ("text/plain; version=0.0.4; charset=utf-8", b"")


class Once:
    """Rows that are read by one thread at a time and stay for `FRESH_SECONDS`."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._lock = rows, threading.Lock()
        self._read_at: float | None = None
        self._found: list[dict[str, Any]] = []

    def __call__(self) -> list[dict[str, Any]]:
        """Raises EmqError where they can't be read, or somebody else has been reading them for `READ_SECONDS`."""
        if not self._lock.acquire(timeout=READ_SECONDS):
            raise EmqError("server or state take too long", where="the page's rows", fix="see the daemon's log")
        try:
            if self._read_at is None or time.monotonic() - self._read_at > FRESH_SECONDS:
                with deadline(READ_SECONDS):
                    self._found = list(self._rows())
                self._read_at = time.monotonic()
            return self._found
        finally:
            self._lock.release()


class Pages:
    """The WSGI application."""

    def __init__(self, facts: PageSources, access: Access) -> None:
        self._facts, self._access, self._rows = facts, access, Once(facts.rows)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """The library's question."""
        try:
            status, kind, body, more = self._answer(environ)
        except EmqError as fault:
            status, kind, body, more = _text(503, str(fault))
        except Exception as fault:  # noqa: BLE001 - the library would write a traceback into the log for each
            status, kind, body, more = _text(500, f"fault of emq-ops itself: {type(fault).__name__}")
        phrase = HTTPStatus(status).phrase
        length = ("Content-Length", str(len(body)))
        start_response(f"{status} {phrase}", [("Content-Type", kind), length, *HEADERS, *more])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: Environ) -> Answer:
        path = str(environ.get("PATH_INFO", "/"))
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _text(405, "GET only", ("Allow", "GET, HEAD"))
        if path in OPEN:
            ok = self._facts.alive() if path == "/livez" else bool(self._facts.health().get("ok"))
            return _text(200 if ok else 503, "ok" if ok else "not ok")
        if not self._access.knows_host(str(environ.get("HTTP_HOST", ""))):
            return _text(421, "asked for by a name that is not known here; http.hosts lists such names")
        trusted = self._access.holds_token(environ)
        if path == "/healthz":
            return self._healthz(trusted)
        if path not in ("/", "/metrics"):
            return _text(404, "no such page")
        if not trusted and not (path == "/metrics" and self._access.metrics_open):
            return _text(401, "a bearer token is wanted", ("WWW-Authenticate", "Bearer"))
        if path == "/metrics":
            kind, body = self._facts.metrics(str(environ.get("HTTP_ACCEPT", "")))
            return 200, kind, body, []
        return 200, "text/html; charset=utf-8", _page(self._rows()).encode(), []

    def _healthz(self, trusted: bool) -> Answer:
        facts = self._facts.health()
        ok = bool(facts.get("ok"))
        body = json.dumps(facts if trusted else {"ok": ok}, separators=(",", ":"))
        return 200 if ok else 503, "application/json", body.encode(), []


Answer = tuple[int, str, bytes, list[tuple[str, str]]]
"""Status, content type, body, further headers."""


def _text(status: int, text: str, *more: tuple[str, str]) -> Answer:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode(), list(more)


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
