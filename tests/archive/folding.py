"""A driver with its parts, and what an outsider sees of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emq_archive.driver import Driver
from emq_archive.local.store import SqlStore, open_local
from emq_archive.model import Policy, Writer
from emq_archive.ports import Remote
from emq_archive.remote import open_remote
from emq_archive.reports import CycleReport
from emq_archive.source import StreamSource
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from tests.support.oracle import Bucket, Seen, local_records
from tests.support.proxy import Match, RespProxy, named, scripted
from tests.support.valkey import Valkey

STATE = "6b3f1c1e-0000-4000-8000-000000000001"


@dataclass
class Host:
    """One host's archive of `mail`/`completions`: its own local database, a remote that others may share."""

    server: Server
    local_url: str
    remote_url: str
    bucket: Bucket
    queue_name: str = "mail"
    stream: str = "completions"
    policy: Policy = field(default_factory=Policy)
    sent: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = Queue(self.server, self.queue_name)
        self.key = self.queue.keys.stream(self.stream)
        self.local: SqlStore = open_local(self.local_url)
        self.remote: Remote = open_remote(self.remote_url)
        self.driver = self.anew()

    @classmethod
    def in_folder(cls, server: Server, root: Path, name: str = "a", **more: Any) -> Host:
        """SQLite and a directory below `root`."""
        folder = root / "bucket"
        return cls(server, f"sqlite:///{root}/{name}.db", f"file:{folder}", Bucket.folder(folder), **more)

    def anew(self, **policy: Any) -> Driver:
        """A driver as a fresh process would have it, with other policy fields if given."""
        self.policy = Policy(**{**_fields(self.policy), **policy})
        source = StreamSource(self.queue, self.stream)
        self.driver = Driver(source, self.local, self.remote, self.policy, None, Writer(STATE, name="test"))
        return self.driver

    def add(self, *ids: str, **fields: bytes | str) -> None:
        """Entries, remembered as XADD took them."""
        for entry in ids:
            flat = [x for pair in (fields or {"f": entry}).items() for x in pair]
            self.put(entry, *flat)

    def put(self, entry: str, *flat: bytes | str) -> None:
        taken = self.server.write("XADD", self.key, entry, *flat)
        self.sent.append(Seen.of(taken, [x.encode() if isinstance(x, str) else x for x in flat]))

    def left(self) -> list[str]:
        """The ids in the stream."""
        return [entry[0].decode() for entry in self.server.read("XRANGE", self.key, "-", "+")]

    def archived(self) -> list[Seen]:
        """What the remote's committed segments hold."""
        return self.bucket.records(self.queue_name, self.stream)

    def rows(self) -> list[Seen]:
        """What the local database holds."""
        return local_records(self.local_url, self.queue_name, self.stream)[0]

    def close(self) -> None:
        self.remote.close()
        self.local.close()


def _fields(policy: Policy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in Policy.__dataclass_fields__}


TOP = 18446744073709551615
READING = named("XRANGE")
TRIMMING = scripted("stream_trim")


@contextlib.contextmanager
def held(valkey: Valkey, host: Host, at: Match, **policy: Any) -> Iterator[list[CycleReport]]:
    """A forced cycle that stands still before its first request of that kind while the ``with`` runs; its report is in
    the list afterwards."""
    reports: list[CycleReport] = []
    with RespProxy(valkey.url) as proxy, connect(proxy.url) as server:
        host.queue.server, direct = server, host.queue.server
        try:
            driver = host.anew(**policy)
            fault = proxy.arm("hold", match=at)
            thread = threading.Thread(target=lambda: reports.append(driver.cycle(force=True)))
            thread.start()
            fault.wait()
            yield reports
            fault.release()
            thread.join(30)
        finally:
            host.queue.server = direct
