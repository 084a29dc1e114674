"""Which database may lead as a state: its id travels in every copy of it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from emq_ops.deploy.store import transfer
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.lease.lease_set import LeaseSet
from emq_ops.passes.lease.owner import ForeignQueueError, lease_info
from emq_ops.passes.lease.queue_lease import HeldQueueError, QueueLease
from emq_ops.passes.lease.take_over import estates, take_over
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.server import Server, connect
from tests.support.postgres import Postgres
from tests.support.proxy import RespProxy, scripted
from tests.support.states import postgres_state, sqlite_state
from tests.support.valkey import Valkey


def copied(path: Path, name: str) -> str:
    """A copy of a database that may be in use."""
    to = path.with_name(name)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return f"sqlite:///{to}"


def led(server: Server, url: str, queue: str = "mail") -> int:
    """One lease taken and given up; its token."""
    with open_ledger(url) as ledger:
        lease = QueueLease(server, ledger, queue)
        token = lease.try_acquire().token
        lease.release()
        return token


def test_a_copy_made_beside_a_living_owner_is_refused_by_name(server: Server, tmp_path: Path) -> None:
    with open_ledger(sqlite_state(tmp_path / "a.db")) as ledger:
        owner = LeaseSet(server, ledger)
        assert owner.acquire(["mail", "orders"]) == {}
        copy = copied(tmp_path / "a.db", "b.db")
        owner.refresh()
        assert owner.renew() == {}
        for _ in range(20):  # counting on does not make it the owner
            with pytest.raises(ForeignQueueError, match=f"is a copy of it.*take-over {ledger.state}") as told:
                led(server, copy)
        assert told.value.holder == owner.me
        with open_ledger(copy) as other:
            refused = LeaseSet(server, other).acquire(["mail", "orders", "new"])
            assert {type(refused[queue]) for queue in ("mail", "orders")} == {ForeignQueueError}
        owner.release()
        with pytest.raises(ForeignQueueError):  # nor does it when the owner is not there
            led(server, copy)
        assert led(server, f"sqlite:///{tmp_path}/a.db") > 1


def test_of_two_copies_the_one_that_led_first_is_the_owner(server: Server, tmp_path: Path) -> None:
    led(server, sqlite_state(tmp_path / "a.db"))
    copy = copied(tmp_path / "a.db", "b.db")
    led(server, copy)
    with pytest.raises(ForeignQueueError):
        led(server, f"sqlite:///{tmp_path}/a.db")
    led(server, copy)


def test_a_database_that_is_moved_or_replaced_by_itself_goes_on(server: Server, tmp_path: Path) -> None:
    led(server, sqlite_state(tmp_path / "a.db"))
    (tmp_path / "elsewhere").mkdir()
    with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(tmp_path / "a.db", tmp_path / "elsewhere" / "a.db")
    os.unlink(tmp_path / "a.db")
    assert [led(server, f"sqlite:///{tmp_path}/elsewhere/a.db") for _ in range(3)] == [2, 3, 4]


def test_an_older_backup_is_refused_for_every_queue(server: Server, tmp_path: Path) -> None:
    url = sqlite_state(tmp_path / "a.db")
    led(server, url)
    backup = copied(tmp_path / "a.db", "backup.db")
    led(server, url)
    led(server, url, "orders")
    with pytest.raises(ForeignQueueError, match="older backup"):
        led(server, backup)
    with pytest.raises(ForeignQueueError):
        led(server, backup, "orders")


def test_the_processes_of_one_database_are_one_owner(server: Server, ledger: Ledger) -> None:
    url = str(ledger.engine.url)
    daemon = LeaseSet(server, ledger)
    assert daemon.acquire(["mail"]) == {}
    for _ in range(3):
        daemon.refresh()
        daemon.renew()
        assert led(server, url, "orders")
        with open_ledger(url) as other, pytest.raises(HeldQueueError):
            QueueLease(server, other, "mail").try_acquire()
    daemon.release()
    assert led(server, url) > 1


def test_a_lease_without_a_stamp_is_of_an_earlier_version(server: Server, ledger: Ledger) -> None:
    fields = ["state", ledger.state, "token", "7", "until", "0", "ms", "15000", "run", server.run_id("mail")]
    server.write("HSET", "emq-ops:{mail}:lease", *fields)
    assert QueueLease(server, ledger, "mail").try_acquire().token == 8
    found = lease_info(server, "mail")
    assert found is not None
    assert found.stamp.life


def test_postgresql_is_known_by_what_no_copy_carries(server: Server, postgres: Postgres) -> None:
    url = postgres_state(postgres)
    assert [led(server, url) for _ in range(2)] == [1, 2]
    copy = postgres.fresh(like=url)
    with pytest.raises(ForeignQueueError, match="is a copy of it"):
        led(server, copy)
    assert led(server, url) == 3


def test_a_lost_state_is_named_with_what_to_do(server: Server, tmp_path: Path) -> None:
    led(server, sqlite_state(tmp_path / "a.db"))
    with pytest.raises(ForeignQueueError, match="emq-ops state take-over") as told:
        led(server, sqlite_state(tmp_path / "b.db"))
    assert isinstance(told.value, EmqError)


def test_an_import_goes_on_from_the_database_that_was_exported(
    server: Server, postgres: Postgres, tmp_path: Path
) -> None:
    first, second = postgres_state(postgres), postgres_state(postgres)
    led(server, first)
    with open_ledger(first) as ledger:
        transfer.export(ledger, tmp_path / "moved")
    with open_ledger(second) as ledger:
        transfer.load(ledger, tmp_path / "moved")
    led(server, second)
    with pytest.raises(ForeignQueueError):  # use the old one no more
        led(server, first)
    led(server, second)
    sqlite = sqlite_state(tmp_path / "a.db")
    with open_ledger(second) as ledger:
        transfer.export(ledger, tmp_path / "again")
    with open_ledger(sqlite) as ledger:
        transfer.load(ledger, tmp_path / "again")
    led(server, sqlite)
    with pytest.raises(ForeignQueueError):
        led(server, second)


def test_a_take_over_that_broke_off_is_ended_by_the_next(valkey: Valkey, server: Server, tmp_path: Path) -> None:
    gone = sqlite_state(tmp_path / "gone.db")
    for queue in ("a", "b", "c"):
        led(server, gone, queue)
    with open_ledger(gone) as lost:
        state = lost.state
    with RespProxy(valkey.url) as proxy, open_ledger(sqlite_state(tmp_path / "new.db")) as ledger:
        with connect(proxy.url) as shaky:
            # The second lease can't be asked for, however often it is tried.
            proxy.arm("cut_before", at=2, match=scripted("lease_acquire"), times=99)
            with pytest.raises(EmqError):
                take_over(shaky, ledger, estates(shaky, ledger)[state], {"b": 40})
        left = estates(server, ledger)[state]
        assert set(left.leases) < {"a", "b", "c"}
        assert set(take_over(server, ledger, left, {"b": 40})) == set(left.leases)
        assert estates(server, ledger) == {}
        assert led(server, str(ledger.engine.url), "b") > 41
        assert ledger.state == state
    with pytest.raises(ForeignQueueError):
        led(server, gone, "a")


def test_what_is_led_is_not_taken_over(server: Server, tmp_path: Path) -> None:
    with open_ledger(sqlite_state(tmp_path / "a.db")) as owner, open_ledger(sqlite_state(tmp_path / "b.db")) as other:
        living = QueueLease(server, owner, "mail")
        living.acquire()
        with pytest.raises(HeldQueueError):
            take_over(server, other, estates(server, other)[owner.state], {})
        assert other.state != owner.state
        living.renew()
