"""adopt, and hosts that find the head of a long log: on every pair of local database and object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from emq_archive.errors import ForeignStateError
from emq_archive.local import SqlStore, open_local
from emq_archive.local.catalog import Catalog
from emq_archive.log.commit import Change
from emq_archive.log.log import CommitLog
from emq_archive.model import RawEntry, Redact, StreamId, Writer, parse_id
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.remote import open_remote
from emq_archive.upkeep.adopt import adopt, after_watermark
from emq_archive.upkeep.compact import compact
from emq_archive.upkeep.verify import verify
from emq_ops.protocol.errors import EmqError
from tests.archive.making import (
    REF,
    START_MS,
    STATE,
    TOP,
    add,
    archived,
    as_seen,
    entry,
    plain,
    seen,
    settled,
    shipper,
)

# --- adopt


class ActiveRestriction:
    """What stands in a stream."""

    def __init__(self, entries: Sequence[RawEntry]) -> None:
        self.entries = entries

    def pages(self, start: StreamId, end: StreamId) -> Iterator[Sequence[RawEntry]]:
        found = [e for e in self.entries if start <= parse_id(e[0]) <= end]
        for at in range(0, len(found), 7):
            yield found[at : at + 7]


def test_another_archivers_work_is_taken_over(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    entries = settled(50)
    after = after_watermark(entries[29][1][1].decode())
    assert after == parse_id(entries[29][0])
    other = new_local()
    add(other, entries[:20])  # another host had read some of them
    ship, beside = shipper(local, remote), shipper(other, remote, redact=Redact(drop=("result",)))
    assert adopt(ship, ActiveRestriction(entries), after, now_ms=START_MS, dry_run=True).records == 30
    done = adopt(ship, ActiveRestriction(entries), after, now_ms=START_MS)
    assert (done.lsn, done.records) == (1, 30)
    added = add(local, entries)
    assert (added.new, added.known) == (20, 30)
    ship.ship(now_ms=START_MS, force=True)
    assert seen(remote) == as_seen(entries[30:])
    assert ship.prove(TOP).bound == TOP
    # It holds on every host, whatever that had read.
    beside.ship(now_ms=START_MS, force=True)
    assert add(other, entries, policy=beside.policy).known == 30
    beside.ship(now_ms=START_MS, force=True)
    assert seen(remote) == as_seen(entries[30:])
    # In another life of the stream the same ids are other records, and are archived.
    assert add(local, [entry(entries[0][0].decode(), "a", "b")], life=1).new == 1


def test_no_watermark_to_begin_after() -> None:
    with pytest.raises(EmqError, match="no archiver left a watermark"):
        after_watermark(None)


# --- the head of a long log


class Counting:
    """A remote that counts requests."""

    def __init__(self, remote: Remote) -> None:
        self.remote, self.requests = remote, 0

    def __getattr__(self, name: str) -> object:
        real = getattr(self.remote, name)

        def call(*args: object, **more: object) -> object:
            self.requests += 1
            return real(*args, **more)

        return call if callable(real) else real


@pytest.mark.parametrize("commits", [25, 65, pytest.param(1_005, marks=pytest.mark.soak(minutes=1))])
def test_the_head_of_a_long_log_takes_as_many_requests_as_that_of_a_short_one(tmp_path: Path, commits: int) -> None:
    """At most 5, and one for each commit since the last checkpoint."""
    remote = open_remote(f"file:{tmp_path}/bucket")
    with open_local(f"sqlite:///{tmp_path}/a.db") as local, open_local(f"sqlite:///{tmp_path}/b.db") as other:
        ship = shipper(local, remote)
        ship.log.checkpoint_every = 20
        for _ in range(commits):
            ship.log.commit(Change(kind="ship", at=START_MS))
            ship.log.checkpoint_if_due()
        counting = Counting(remote)
        fresh = CommitLog(Catalog(other, REF), counting, Writer(STATE))  # type: ignore[arg-type]  # all that a Remote has
        assert fresh.sync() == replace(Catalog(local, REF).known(), checkpoint_lsn=commits - 5)
        assert counting.requests <= 5 + 5
        counting.requests = 0
        fresh.sync()
        assert counting.requests == 2


@pytest.mark.alike
def test_a_host_that_was_away_catches_up_by_a_checkpoint(new_local: Callable[[], SqlStore], tmp_path: Path) -> None:
    remote = open_remote(f"file:{tmp_path}/bucket")
    one, two, three = new_local(), new_local(), new_local()
    entries = archived(one, remote)
    add(two, entries[:60])
    shipper(two, remote).ship(now_ms=START_MS, force=True)
    ship = shipper(one, remote)
    ship.log.checkpoint_every = 20
    compact(ship, now_ms=START_MS)
    for _ in range(70):
        ship.log.commit(Change(kind="ship", at=START_MS))
        ship.log.checkpoint_if_due()
    away = shipper(two, remote)
    away.log.page = 30
    assert away.log.sync() == shipper(one, remote).log.sync()
    assert plain(Archive(two, remote, REF).read()) == entries
    assert shipper(three, remote).log.sync().lsn == Catalog(one, REF).known().lsn
    assert plain(Archive(three, remote, REF).read()) == entries
    assert away.ship(now_ms=START_MS, force=True).segments == 0
    assert verify(one, remote, REF).good
    with pytest.raises(ForeignStateError):
        shipper(three, remote, state="another").log.sync()
