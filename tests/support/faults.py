"""What the fault proxies share: requests, planned harm, and a proxy that counts and decides. See ``proxy``."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from emq_ops.protocol import scripts

KINDS = ("cut_before", "cut_after", "drop_reply", "half_reply", "answer", "kill_before", "kill_after", "delay", "hold")
HANDSHAKE = {"CLIENT", "HELLO", "AUTH", "SELECT", "PING", "INFO", "COMMAND", "READONLY", "CLUSTER", "ROLE", "SENTINEL"}
READS = {"GET", "MGET", "TIME", "SCAN", "KEYS", "EXISTS", "TYPE", "TTL", "PTTL", "DBSIZE", "EVALSHA_RO", "EVAL_RO"}
READS |= {"HGET", "HMGET", "HGETALL", "HLEN", "HEXISTS", "HSCAN", "HKEYS", "LLEN", "LRANGE", "LINDEX", "LPOS", "SCARD"}
READS |= {"SMEMBERS", "SISMEMBER", "SMISMEMBER", "SSCAN", "ZCARD", "ZRANGE", "ZRANGEBYSCORE", "ZSCORE", "ZMSCORE"}
READS |= {"ZRANK", "ZCOUNT", "ZSCAN", "XLEN", "XRANGE", "XREVRANGE", "XINFO", "XPENDING", "STRLEN", "CONFIG", "SCRIPT"}
READS |= {"SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SLOWLOG", "LATENCY", "MEMORY", "ACL"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `name`: the command, or the HTTP method; `words`: the command's words, or ``[method, target]``."""

    name: str
    words: list[bytes]
    raw: bytes = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)


Match = Callable[[Request], bool]


def anything(request: Request) -> bool:
    return True


def writes(request: Request) -> bool:
    """Whatever may change data: not a read, not a client's handshake."""
    return request.name not in READS and request.name not in HANDSHAKE


def named(*names: str) -> Match:
    """Requests of these names (commands, or HTTP methods)."""
    return lambda request: request.name in names


def scripted(*transitions: str) -> Match:
    """Calls of these transitions (``lua/<name>.lua``), by SHA or by source."""
    found = [scripts.load(name) for name in transitions]
    known = {script.sha.encode() for script in found} | {script.source for script in found}
    return lambda request: request.name.startswith("EVAL") and request.words[1] in known


@dataclass
class Fault:
    """One planned harm; see the head of ``proxy``."""

    kind: str
    at: int = 1
    match: Match = writes
    times: int = 1
    seconds: float = 0.0
    body: bytes = b""
    status: int = 500
    pid: int | Callable[[], int] | None = None
    seen: int = 0
    fired: int = 0
    _fired: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout: float = 20) -> None:
        """Blocks until it fired; fails the test otherwise."""
        assert self._fired.wait(timeout), f"{self.kind} at {self.at} never fired ({self.seen} matching requests seen)"

    def release(self) -> None:
        """Lets what it holds go on."""
        self._released.set()

    def due(self, request: Request) -> bool:
        if not self.match(request):
            return False
        self.seen += 1
        return self.at <= self.seen < self.at + self.times

    def begin(self) -> None:
        """Says that it fired, and sits out a `delay` or a `hold`."""
        self.fired += 1
        self._fired.set()
        if self.kind == "delay":
            time.sleep(self.seconds)
        elif self.kind == "hold":
            self.sit()

    def sit(self) -> None:
        """Blocks (bounded) until it is released."""
        self._released.wait(60)

    def kill(self) -> None:
        pid = self.pid() if callable(self.pid) else self.pid
        assert pid is not None, "a kill needs a pid"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Cut(Exception):
    """This connection ends now."""


class Proxy:
    """The part that every protocol shares: listen, count, plan faults. Subclasses have `exchange`."""

    KINDS: tuple[str, ...] = KINDS

    def __init__(self, upstream: str, *, tcp: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        parts = urlsplit(upstream)
        self._upstream: str | tuple[str, int] = (
            parts.path if parts.scheme == "unix" else (parts.hostname or "127.0.0.1", parts.port or 6379)
        )
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._dir = None if tcp else Path(tempfile.mkdtemp(prefix="emqp-"))
        self.address: str | tuple[str, int] = str(self._dir / "p") if self._dir else ("127.0.0.1", 0)
        self._listener: socket.socket | None = None

    @property
    def url(self) -> str:
        """Where clients connect to."""
        if isinstance(self.address, str):
            return f"unix://{self.address}"
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.address[1]}"

    def arm(self, kind: str, at: int = 1, match: Match = writes, **more: object) -> Fault:
        """Plans a fault; see the head of ``proxy``. The first that is due at a request is the one that happens."""
        assert kind in self.KINDS, kind
        fault = Fault(kind, at, match, **more)  # type: ignore[arg-type]  # the fields of Fault, by name
        with self._lock:
            self.faults.append(fault)
        return fault

    def disarm(self) -> None:
        """Forgets every fault, and lets go what they hold."""
        with self._lock:
            faults, self.faults = self.faults, []
        for fault in faults:
            fault.release()

    def count(self, match: Match = anything) -> int:
        """How many requests came that match."""
        with self._lock:
            return sum(1 for request in self.requests if match(request))

    def forget(self) -> None:
        """Counts from zero again."""
        with self._lock:
            self.requests.clear()

    def up(self) -> None:
        """Listens (again, at the same address)."""
        unix = isinstance(self.address, str)
        listener = socket.socket(socket.AF_UNIX if unix else socket.AF_INET, socket.SOCK_STREAM)
        if isinstance(self.address, str):
            Path(self.address).unlink(missing_ok=True)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(self.address)
        listener.listen(128)
        if not unix:
            self.address = listener.getsockname()
        self._listener = listener
        self._spawn(self._accept, listener)

    def down(self) -> None:
        """An outage: refuses connections and cuts those that are open."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
            self._listener.close()
            self._listener = None
            if isinstance(self.address, str):
                Path(self.address).unlink(missing_ok=True)
        self.cut_all()

    def cut_all(self) -> None:
        """Cuts every open connection; new ones are taken."""
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.disarm()
        self.down()
        for thread in self._threads:
            thread.join(20)
        if self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decide(self, request: Request) -> Fault | None:
        """Counts one request and answers the fault that is due at it, its `delay` or `hold` already sat out."""
        with self._lock:
            self.requests.append(request)
            due = [fault for fault in self.faults if fault.due(request)]
        if not due:
            return None
        due[0].begin()
        return due[0]

    def exchange(self, client: socket.socket, upstream: socket.socket) -> None:
        """Serves one connection until either side ends it (returns, or raises Cut or OSError)."""
        raise NotImplementedError

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._spawn(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        upstream = socket.socket(socket.AF_UNIX if isinstance(self._upstream, str) else socket.AF_INET)
        try:
            with self._lock:
                self._open |= {client, upstream}
            upstream.connect(self._upstream)
            for sock in (client, upstream):
                if sock.family != socket.AF_UNIX:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small replies, one at a time
            if self._listener is None:
                return
            if self.tls is None:
                self.exchange(client, upstream)
                return
            with self.tls.wrap_socket(client.dup(), server_side=True) as secure:
                self.exchange(secure, upstream)
        except (Cut, OSError, ValueError):
            pass  # cut on purpose, or either side went away in the middle of a frame
        finally:
            with self._lock:
                self._open -= {client, upstream}
            for sock in (client, upstream):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
