"""`local_keep`, and the last copy: nothing local goes that the remote is not proven to hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_archive.errors import DamagedArchiveError, StoreRefusedError
from emq_archive.local import SqlStore
from emq_archive.model import LAST_ID, StreamRef, parse_id
from emq_archive.ports import Remote
from emq_archive.upkeep.prune import prune
from emq_archive.upkeep.verify import verify
from emq_ops.protocol.server import Server
from tests.archive.folding import Host
from tests.archive.making import REF, START_MS, add, archived, plain, settled, shipper

LATER = START_MS + 3_600_000


@pytest.fixture
def host(server: Server, tmp_path: Path) -> Iterator[Host]:
    made = Host.in_folder(server, tmp_path)
    yield made
    made.close()


def test_pruning_takes_shipped_rows_below_the_stream_only(local: SqlStore, remote: Remote) -> None:
    entries = archived(local, remote, pages=2, each=10, step_ms=1000)
    entries += settled(10, first=20, step_ms=1000)
    add(local, entries[20:])
    ship = shipper(local, remote, local_keep_ms=0)
    below = [parse_id(entry[0]) for entry in entries]
    assert prune(shipper(local, remote), now_ms=LATER, below=below[29]) == 0
    assert prune(ship, now_ms=START_MS, below=below[29]) == 0
    assert prune(ship, now_ms=LATER, below=None) == 0
    assert prune(ship, now_ms=LATER, below=below[15]) == 10
    assert prune(ship, now_ms=LATER, below=below[29]) == 10
    assert plain(local.records(REF)) == entries[20:]


def test_dead_jobs_are_as_old_as_their_archiving(local: SqlStore, remote: Remote) -> None:
    ref = StreamRef.dead("mail")
    add(local, settled(3), ref)
    ship = shipper(local, remote, ref, local_keep_ms=60_000)
    (added_ms,) = {row.added_ms for row in ship.catalog.waiting()}
    ship.ship(now_ms=START_MS, force=True)
    assert prune(ship, now_ms=added_ms + 60_000, below=LAST_ID) == 0
    assert prune(ship, now_ms=added_ms + 60_001, below=LAST_ID) == 3


@pytest.mark.parametrize("what", ["everything", "the head", "a segment", "half of a segment"])
def test_the_last_copy_stays(host: Host, what: str) -> None:
    """A share that is not mounted, an object that somebody deleted: the cycle fails, and no local row goes."""
    host.add(*(f"{i}-0" for i in range(1, 21)))
    host.anew(keep=0, local_keep_ms=0).cycle(force=True)
    assert (len(host.rows()), host.left()) == (20, [])
    root = Path(host.remote_url.removeprefix("file:"))
    segment = next(root.rglob("*.parquet"))
    if what == "everything":
        shutil.rmtree(root)
        root.mkdir()
    elif what == "the head":
        next(root.rglob("log/**/*1.json")).unlink()
    elif what == "a segment":
        segment.unlink()
    else:
        segment.write_bytes(segment.read_bytes()[:100])
    with pytest.raises(DamagedArchiveError):
        host.driver.cycle()
    host.add("30-0", "31-0")
    for _ in range(2):
        with pytest.raises(DamagedArchiveError):
            host.driver.cycle(force=True)
    assert (len(host.rows()), len(host.left())) == (22, 2)


class Forgetful:
    """A store that acknowledges writes of keys that begin so, and does not keep them."""

    def __init__(self, remote: Remote, prefix: str) -> None:
        self.remote, self.prefix = remote, prefix

    def __getattr__(self, name: str) -> object:
        return getattr(self.remote, name)

    def create(self, key: str, body: bytes | Path) -> str:
        return "created" if key.startswith(self.prefix) else self.remote.create(key, body)


@pytest.mark.parametrize("prefix", ["log/", "queue="])
def test_a_store_that_does_not_keep_what_it_took_costs_nothing(
    host: Host, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emq_archive.remote.back.WAITS", (0.01,))
    host.add(*(f"{i}-0" for i in range(1, 21)))
    whole = host.remote
    host.remote = Forgetful(whole, prefix)  # type: ignore[assignment]  # all that a Remote has
    with pytest.raises(StoreRefusedError, match="read back"):
        host.anew(keep=0).cycle(force=True)
    assert len(host.left()) == 20
    host.remote = whole
    assert host.anew(keep=0).cycle(force=True).trimmed == 20
    assert host.archived() == host.sent
    assert verify(host.local, host.remote, host.driver.source.ref).faults == []


def test_what_shows_a_little_later_is_no_damage(host: Host) -> None:
    """Some stores answer 404 for a moment after a write."""
    seen: dict[str, int] = {}
    real = host.remote.get

    def get(key: str, **more: int | None) -> bytes | None:
        seen[key] = seen.get(key, 0) + 1
        return None if seen[key] < 3 else real(key, **more)

    host.remote.get = get  # type: ignore[method-assign]  # a slow store
    host.add(*(f"{i}-0" for i in range(1, 21)))
    assert host.anew(keep=0).cycle(force=True).trimmed == 20
    assert len(list(Path(host.remote_url.removeprefix("file:")).rglob("*.parquet"))) == 1
