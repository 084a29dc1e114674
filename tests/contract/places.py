"""Every kind of place that a URL can name, as a real one: what the contract suite runs over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from emq_ops.protocol.server import ConnectionOptions
from tests.support.cluster import Cluster
from tests.support.ports import free_ports
from tests.support.proxy import RespProxy
from tests.support.sentinel import Sentinel
from tests.support.tls import make_certificates
from tests.support.valkey import Valkey

KINDS = ("tcp", "unix", "tls", "sentinel", "cluster", "embedded")


@dataclass
class Place:
    """`url` and `options` to connect with; `sockets` of every server behind it, for looking from outside."""

    kind: str
    url: str
    options: ConnectionOptions = field(default_factory=ConnectionOptions)
    base_dir: Path | None = None
    sockets: list[Path] = field(default_factory=list)

    def admins(self) -> Iterator[redis.Redis]:
        """A plain client of each server that is a primary."""
        for path in self.sockets:
            with redis.Redis(unix_socket_path=str(path), protocol=2) as client:
                if client.info("replication")["role"] == "master":
                    yield client

    def empty(self) -> None:
        """Nothing stays: no key, no script, no fence."""
        for admin in self.admins():
            admin.flushall()
            admin.script_flush()
            admin.config_resetstat()


@contextlib.contextmanager
def open_place(kind: str, folder: Path) -> Iterator[Place]:
    """Starts what `kind` takes."""
    with contextlib.ExitStack() as stack:
        if kind == "cluster":
            cluster = stack.enter_context(Cluster())
            yield Place(kind, cluster.url, sockets=[node.socket for node in cluster.nodes])
        elif kind == "sentinel":
            watched = stack.enter_context(Sentinel())
            yield Place(kind, watched.url, sockets=[node.socket for node in watched.nodes])
        elif kind == "embedded":
            yield Place(kind, "embedded", base_dir=folder, sockets=[folder / ".emq" / "server" / "s"])
        else:
            [port] = free_ports(1) if kind == "tcp" else [0]
            server = stack.enter_context(Valkey(port=port, appendonly="yes", appendfsync="always"))
            place = Place(kind, server.url, sockets=[server.socket])
            if kind == "tcp":
                place.url = f"redis://127.0.0.1:{port}/0"
            elif kind == "tls":
                files = make_certificates(folder)
                context = files.server_context(ask_client=True)
                place.url = stack.enter_context(RespProxy(server.url, tcp=True, tls=context)).url + "/0"
                place.options = ConnectionOptions(
                    ca=str(files.ca), cert=str(files.client_cert), key=str(files.client_key)
                )
            yield place
