"""A restore over a log whose end is missing: its chain is whole, and what lies beside it, or elsewhere, tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emq_archive.local import SqlStore
from emq_archive.log.commit import checkpoint_key, commit_key
from emq_archive.ports import Remote
from emq_archive.upkeep.end import Noted
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.verify import verify
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.archive.making import REF, START_MS, archived, shipper
from tests.support.cli import Ran, emq
from tests.support.valkey import Valkey


def holes(new_local: Callable[[], SqlStore], remote: Remote, noted: Noted | None = None) -> list[str]:
    return restore(new_local(), remote, REF, now_ms=START_MS, noted=noted).holes


@pytest.mark.alike
def test_what_speaks_for_a_lost_end(local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote) -> None:
    archived(local, remote)
    head = verify(local, remote, REF).head
    newest = shipper(local, remote).watermark()
    assert newest is not None
    assert holes(new_local, remote, Noted(head, newest)) == []
    last = remote.get(commit_key(REF, 4)) or b""
    segment = sorted(key for key in remote.list("queue=mail/"))[-1]
    remote.delete([commit_key(REF, 4)])
    told = holes(new_local, remote)
    assert len(told) == 1
    assert told[0].startswith(f"{segment}: holds records that no commit names: the commit is missing behind")
    body = remote.get(segment) or b""
    remote.delete([segment])
    assert holes(new_local, remote) == []  # nothing can tell
    assert holes(new_local, remote, Noted(head)) == [
        f"no commit of the log has the hash {head}: its end is missing, or it is another log"
    ]
    assert f"the server says that record {newest} was archived" in holes(new_local, remote, Noted(None, newest))[0]
    behind = new_local()  # which saw the log as it is now
    assert restore(behind, remote, REF, now_ms=START_MS).holes == []
    remote.create(checkpoint_key(REF, 4), b"whatever")
    assert restore(behind, remote, REF, now_ms=START_MS).holes == [
        f"a checkpoint after commit 4 is there, and the log ends with {commit_key(REF, 3)}"
    ]
    remote.delete([checkpoint_key(REF, 4)])
    remote.create(segment, body)
    remote.create(commit_key(REF, 4), last)
    assert holes(new_local, remote, Noted(head, newest)) == []


def test_what_a_killed_writer_left_and_wrote_again_speaks_for_nothing(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    archived(local, remote)
    first = sorted(remote.list("queue=mail/"))[0]
    remote.create(first.replace(".parquet", "-left.parquet"), remote.get(first) or b"")
    remote.create("queue=mail/stream=completions/date=2024-12-01/1-0-2-0-00.parquet", b"half")
    assert holes(new_local, remote) == []


@pytest.fixture
def run(tmp_path: Path, server: Server, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(
        f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///state.db'}}\n"
        "archive: {remote: {url: 'file:bucket'}}\nqueues: {q: {streams: {completions: {every: 1s}}}}\n"
    )
    return emq


def test_the_server_knows_that_the_end_is_missing(run: Callable[..., Ran], server: Server, tmp_path: Path) -> None:
    key = Queue(server, "q").keys.stream("completions")
    for number in range(1, 4):
        evt = ids.from_stream_id(f"{START_MS + number}-0")
        assert evt is not None
        server.write("XADD", key, f"{START_MS + number}-0", "id", str(evt), "job", "x")
        assert run("archive", "fold", "q").code == 0
    head = run("archive", "verify", "q", "--output", "json").json["head"]
    whole = run("archive", "restore", "q", "--local", "sqlite:///new.db")
    assert whole.code == 0
    assert "no chain can tell; nothing beside it and nothing on the server speaks for it" in whole.err
    assert head in whole.err
    sure = run("archive", "restore", "q", "--local", "sqlite:///new2.db", "--expect-head", head)
    assert (sure.code, sure.err) == (0, "")
    commits = sorted((tmp_path / "bucket" / "log").rglob("*.json"))
    segments = sorted((tmp_path / "bucket").rglob("*.parquet"))
    assert (len(commits), len(segments)) == (3, 3)
    commits[-1].unlink()
    segments[-1].unlink()
    lost = run("archive", "restore", "q", "--local", "sqlite:///new3.db")
    assert lost.code == 1
    assert "the server says that record EVT" in lost.err
    gone = run(
        "archive", "restore", "q", "-c", "config.yaml", "--local", "sqlite:///new4.db", "--url", "redis://127.0.0.1:1"
    )
    assert gone.code == 0
    assert "nothing beside it (no server was asked) speaks for it" in gone.err
    told = run("archive", "restore", "q", "--local", "sqlite:///n5.db", "--expect-head", head)
    assert (told.code, f"no commit of the log has the hash {head}" in told.err) == (1, True)
