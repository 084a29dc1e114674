"""A stream that is filled, one object store, a local database for each host; and what must be true of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server
from tests.faults.archive.run_cycles import cycles
from tests.support.daemons import environment
from tests.support.http_proxy import HttpProxy
from tests.support.kills import Moment, kill_at, moments
from tests.support.oracle import Bucket, Seen, local_records
from tests.support.postgres import Postgres
from tests.support.proxy import Proxy, Request, RespProxy, anything
from tests.support.s3 import CREDENTIALS, S3Server
from tests.support.zygote import Child, Zygote

CYCLES = "tests.faults.archive.run_cycles"
STREAM = "completions"
POLICY = {"keep": 5, "page": 7, "batch": 24, "segment_bytes": 2500}
RECORDS = 40
HANDSHAKES = {"CLIENT", "HELLO", "AUTH", "SELECT", "PING", "INFO", "COMMAND", "CLUSTER", "ROLE"}


def asked(request: Request) -> bool:
    """Whatever a client sends that is about data."""
    return request.name not in HANDSHAKES


@dataclass
class Store:
    """An object store under test: where drivers find it, how an outsider reads it."""

    url: str
    options: dict[str, Any]
    bucket: Bucket
    http: HttpProxy | None = None
    environment: dict[str, str] = field(default_factory=dict)


def folder_store(root: Path) -> Store:
    return Store(f"file:{root}", {}, Bucket.folder(root))


def s3_store(s3: S3Server, proxy: HttpProxy) -> Store:
    name = s3.bucket()
    options = {"endpoint": proxy.url, "region": CREDENTIALS["AWS_REGION"]}
    return Store(f"s3://{name}/kept/here", options, Bucket.s3(s3.client(), name, "kept/here/"), proxy, CREDENTIALS)


class Locals:
    """URLs of the hosts' local databases: files in a folder, or databases of a PostgreSQL."""

    def __init__(self, root: Path, postgres: Postgres | None = None) -> None:
        self._root, self._postgres = root, postgres
        self._urls: dict[str, str] = {}

    def url(self, host: str) -> str:
        if host not in self._urls:
            self._urls[host] = self._postgres.fresh() if self._postgres else f"sqlite:///{self._root}/{host}.db"
        return self._urls[host]


@dataclass
class World:
    """One stream of one queue. Worlds share databases and store; their queues keep them apart."""

    server: Server
    url: str
    queue: str
    locals: Locals
    store: Store
    policy: dict[str, Any] = field(default_factory=lambda: dict(POLICY))
    sent: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = keys_of(self.queue).stream(STREAM)

    def fill(self, count: int = RECORDS) -> None:
        """More records, remembered as XADD took them."""
        for number in range(len(self.sent) + 1, len(self.sent) + count + 1):
            flat = [b"id", b"EVT0STBBIRAKHo", b"tag", b"a", b"tag", b"\xff%d" % number, b"", b""]
            taken = self.server.write("XADD", self.key, f"{number}-{number % 3}", *flat)
            self.sent.append(Seen.of(taken, flat))

    def spec(self, host: str, url: str | None = None, **more: Any) -> dict[str, Any]:
        """What a driver's process of that host runs; `url`: through this proxy."""
        return {
            "url": url or self.url,
            "queue": self.queue,
            "stream": STREAM,
            "local": self.locals.url(host),
            "remote": self.store.url,
            "remote_options": self.store.options,
            "policy": self.policy,
            "environment": self.store.environment,
            **more,
        }

    def start(self, zygote: Zygote, host: str, url: str | None = None, **more: Any) -> Child:
        """A driver's process of that host."""
        return zygote.start(CYCLES, **self.spec(host, url, **more))

    def told(self, zygote: Zygote, host: str, url: str | None = None, **more: Any) -> dict[str, Any]:
        """What such a process says at its end."""
        told: dict[str, Any] | None = self.start(zygote, host, url, **more).result()
        assert told is not None
        return told

    def run(self, zygote: Zygote, host: str, url: str | None = None) -> dict[str, Any]:
        """An undisturbed run, which must go well."""
        told = self.told(zygote, host, url)
        assert told["errors"] == []
        return told

    def moments(self, zygote: Zygote, host: str, *, whole: bool) -> list[Moment]:
        """The moments at which a cycle can be killed: at requests to Valkey and S3, commits, files (see `kills`)."""
        with RespProxy(self.url) as proxy:
            if self.store.http is not None:
                self.store.http.forget()
            told = self.run(zygote, host, proxy.url)
            counts = dict(told["effects"])
            if whole:
                counts["request"] = proxy.count(asked)
            if self.store.http is not None:
                counts["http"] = self.store.http.count(anything)
            return moments(counts, None if whole else proxy, whole=whole)

    def kill(self, zygote: Zygote, host: str, moment: Moment) -> None:
        """A run that is killed at that moment."""
        with RespProxy(self.url) as resp:
            proxies: dict[str, Proxy] = {"request": resp}
            if self.store.http is not None:
                proxies["http"] = self.store.http
            match = asked if moment[0] == "request" else None
            child = kill_at(moment, zygote, CYCLES, proxies, match, **self.spec(host, resp.url))
        assert child.wait() < 0, "it was not killed"

    # --- what must be true

    def in_stream(self) -> list[Seen]:
        return [Seen.of(entry[0], entry[1]) for entry in self.server.read("XRANGE", self.key, "-", "+")]

    def archived(self) -> list[Seen]:
        return self.store.bucket.records(self.queue, STREAM)

    def nothing_lost(self) -> None:
        """Whatever is not in the stream is in a committed segment, once."""
        left, archived = set(self.in_stream()), self.archived()
        assert len(set(archived)) == len(archived), "a record is in the archive twice"
        assert set(self.sent) - left <= set(archived), "a record was trimmed and is not in the archive"
        assert set(archived) <= set(self.sent), "the archive holds what nobody sent"

    def converged(self, host: str) -> None:
        """All is in the archive once; the stream holds what the policy keeps; this host's rows are proven."""
        self.nothing_lost()
        assert self.archived() == sorted(self.sent)
        assert self.in_stream() == sorted(self.sent)[-self.policy["keep"] :]
        rows, shipped = local_records(self.locals.url(host), self.queue, STREAM)
        assert len(set(rows)) == len(rows)
        assert shipped == rows
        assert set(rows) <= set(self.sent)

    def settle(self, host: str, watching: str | None = None) -> None:
        """After a kill: nothing is lost; then, in this process, `host` finishes, and after it `watching`, if any."""
        self.nothing_lost()
        for name in (host, *([watching] if watching else [])):
            with environment(self.store.environment):
                told = cycles(self.spec(name))
            assert told["errors"] == []
            self.converged(name)
