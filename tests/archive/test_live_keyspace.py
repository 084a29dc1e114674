"""The recorded live keyspace: all three streams folded, shipped, verified, restored, equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_archive.live import LiveStream
from emq_archive.local import open_local
from emq_archive.model import StreamRef, show_id
from emq_archive.read.archive import Archive
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.verify import verify
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server
from tests.archive.folding import Host
from tests.support.keyspace import dump, live_keyspace, load_live
from tests.support.oracle import Seen

STREAMS = [("orders", "completions", 128), ("mail", "completions", 62), ("orders", "audit", 300)]


@pytest.mark.parametrize(("queue", "stream", "count"), STREAMS)
def test_folded_shipped_verified_restored_equal(
    server: Server, tmp_path: Path, queue: str, stream: str, count: int
) -> None:
    load_live(server)
    key = f"emq:{{{queue}}}:stream:{stream}"
    before = [Seen.of(entry[0], entry[1]) for entry in server.read("XRANGE", key, "-", "+")]
    others = {name: value for name, value in dump(server).items() if not name.startswith(key)}
    assert len(before) == count
    host = Host.in_folder(server, tmp_path, queue_name=queue, stream=stream)
    report = host.anew(keep=0).cycle(force=True)
    ref = StreamRef(queue, stream)
    assert (report.folded, report.shipped) == (count, count)
    assert host.archived() == host.rows() == before
    assert verify(host.local, host.remote, ref).faults == []
    with open_local(f"sqlite:///{tmp_path}/restored.db") as fresh:
        assert restore(fresh, host.remote, ref, now_ms=1).records == count
        archive = Archive(fresh, host.remote, ref, live=LiveStream(host.queue, stream))
        found = [Seen(*record.id, record.fields) for record in archive.read()]
    assert found == before
    # Nothing else on the server moved.
    left = {name: value for name, value in dump(server).items() if not name.startswith(key)}
    assert left.pop(keys_of(queue).marks).keys() == {"hash"}  # our own: how far the stream was stored
    assert left == others
    host.close()


def groups(server: Server, key: str) -> list[tuple[dict[bytes, object], list[object], list[object]]]:
    """All that the server says of a stream's groups: the group, its consumers, its pending entries one by one."""
    out = []
    for reply in server.read("XINFO", "GROUPS", key):
        told = dict(zip(reply[::2], reply[1::2], strict=True))
        name = told[b"name"]
        consumers = [
            {n: v for n, v in zip(one[::2], one[1::2], strict=True) if n not in (b"idle", b"inactive")}
            for one in server.read("XINFO", "CONSUMERS", key, name)
        ]
        # id, consumer and how often it was delivered; the idle time goes on by itself
        pending = [(p[0], p[1], p[3]) for p in server.read("XPENDING", key, name, "-", "+", 10_000)]
        out.append((told, consumers, pending))
    return out


def test_audit_keeps_what_billing_and_search_still_need(server: Server, tmp_path: Path) -> None:
    load_live(server)
    host = Host.in_folder(server, tmp_path, queue_name="orders", stream="audit")
    told = live_keyspace()["emq:{orders}:stream:audit"]["stream"]
    ids = [entry[0] for entry in told["entries"]]
    needed = {}
    for group in told["groups"]:
        after = [i for i in ids if _key(i) > _key(group["last_delivered"])]
        needed[group["name"]] = min([*(entry for entry, _ in group["pending"]), *after[:1]], key=_key)
    floor = min(needed.values(), key=_key)
    before = groups(server, host.key)
    assert {told[b"name"].decode(): told[b"pending"] for told, _, _ in before} == {"billing": 15, "search": 250}
    assert [len(pending) for _, _, pending in before] == [told[b"pending"] for told, _, _ in before]
    report = host.anew(keep=0).cycle(force=True)
    assert {group["name"]: group["needs"] for group in report.groups} == needed
    counts = {group["name"]: (group["pending"], group["undelivered"]) for group in report.groups}
    assert counts == {"billing": (15, 260), "search": (250, 50)}
    assert report.trimmed == sum(_key(i) < _key(floor) for i in ids)
    assert host.left() == [i for i in ids if _key(i) >= _key(floor)]
    assert groups(server, host.key) == before
    # `search` catches up by and by; each time what neither needs any more goes, and nothing else.
    entries = server.read("XRANGE", host.key, "-", "+")
    taken = [entry for entry, _, _ in before[1][2]]
    for acked in (1, 100, len(taken)):
        server.write("XACK", host.key, "search", *taken[:acked])
        rest = [*taken[acked:], *(e.encode() for e in ids[len(taken) :])]
        floor = min(needed["billing"], rest[0].decode(), key=_key)
        before = groups(server, host.key)
        report = host.anew(keep=0).cycle(force=True)
        # At and above what either still needs all is there, byte for byte; below it nothing.
        assert server.read("XRANGE", host.key, "-", "+") == [e for e in entries if _key(e[0].decode()) >= _key(floor)]
        assert groups(server, host.key) == before
        gone = len(ids) - len(host.left())
        assert gone > 0
    assert floor == needed["billing"]
    host.close()


def _key(stream_id: str) -> tuple[int, int]:
    ms, seq = stream_id.split("-")
    return int(ms), int(seq)


def test_the_original_is_in_order() -> None:
    """The recording is what this file believes it to be."""
    for queue, stream, count in STREAMS:
        entries = live_keyspace()[f"emq:{{{queue}}}:stream:{stream}"]["stream"]["entries"]
        assert len(entries) == count
        assert [show_id(_key(e[0])) for e in entries] == [e[0] for e in entries]
