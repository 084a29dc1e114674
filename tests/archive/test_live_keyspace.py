"""The recorded live keyspace: all three streams folded, shipped, verified, restored, equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_archive.live import LiveStream
from emq_archive.local import open_local
from emq_archive.model import StreamRef, show_id
from emq_archive.read import Archive
from emq_archive.restore import restore
from emq_archive.verify import verify
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
    assert {name: value for name, value in dump(server).items() if not name.startswith(key)} == others
    host.close()


def test_audit_keeps_what_billing_and_search_still_need(server: Server, tmp_path: Path) -> None:
    load_live(server)
    host = Host.in_folder(server, tmp_path, queue_name="orders", stream="audit")
    told = live_keyspace()["emq:{orders}:stream:audit"]["stream"]
    ids = [entry[0] for entry in told["entries"]]
    needed = []
    for group in told["groups"]:
        after = [i for i in ids if _key(i) > _key(group["last_delivered"])]
        needed.append(min([*(entry for entry, _ in group["pending"]), *after[:1]], key=_key))
    floor = min(needed, key=_key)
    before = dump(server)["emq:{orders}:stream:audit"]
    report = host.anew(keep=0).cycle(force=True)
    assert {group["name"] for group in report.groups} == {"billing", "search"}
    counts = {group["name"]: (group["pending"], group["undelivered"]) for group in report.groups}
    assert counts["billing"] == (15, 260)
    assert counts["search"][0] == 250
    assert host.left() == [i for i in ids if _key(i) >= _key(floor)]
    assert report.trimmed == sum(_key(i) < _key(floor) for i in ids)
    # The groups stand as they stood.
    after_trim = dump(server)["emq:{orders}:stream:audit"]
    assert after_trim["groups" if "groups" in after_trim else "stream"] is not None
    assert before is not None
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
