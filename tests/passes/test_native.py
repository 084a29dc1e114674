"""The sweep by the module's own command, on a server that has one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emq_ops.ledger import deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.errors import EmqError, StateError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from tests.support.native import with_module
from tests.support.passing import add, dead_of, lapse, row_of, stall, swept, take
from tests.support.valkey import Valkey


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with with_module(tmp_path_factory.mktemp("module")) as valkey:
        yield valkey


@pytest.fixture
def opened(native: Valkey) -> Iterator[Server]:
    with native.client() as admin:
        admin.flushall()
    with connect(native.url) as server:
        yield server


def claimed(server: Server, mail: Queue, epoch: str) -> str:
    """A job that a native claim took, and whose lease has lapsed."""
    [job] = stall(mail)
    server.write("HSET", mail.keys.row(job), "lease_epoch", epoch)
    return job


def test_counted_and_exempt_by_their_epochs(opened: Server, ledger: Ledger) -> None:
    mail = Queue(opened, "mail")
    ours = claimed(opened, mail, opened.run_id("mail"))
    earlier = claimed(opened, mail, "0" * 40)
    report = swept(opened, ledger, "mail", executor="native")
    assert (report.dead_jobs, report.exempted_jobs) == ([ours], [earlier])
    [death] = deaths.iterate(ledger)
    assert (death.job, death.killed_by, death.stalls) == (ours, report.run, 1)
    assert row_of(mail, earlier)["state"] == "pending"
    assert opened.read("EXISTS", mail.keys.swept) == 0


def test_refused_where_script_claims_are_seen(opened: Server, ledger: Ledger) -> None:
    mail = Queue(opened, "mail")
    claimed(opened, mail, opened.run_id("mail"))
    add(mail)
    take(mail)
    lapse(mail)
    with pytest.raises(StateError, match="1 lapsed leases have no epoch"):
        swept(opened, ledger, "mail", executor="native")
    assert opened.read("ZCARD", mail.keys.active) == 2
    assert dead_of(mail) == []


def test_refused_where_there_is_no_such_command(server: Server, ledger: Ledger, mail: Queue) -> None:
    [job] = stall(mail)
    server.write("HSET", mail.keys.row(job), "lease_epoch", server.run_id("mail"))
    with pytest.raises(EmqError, match=r"EMQ\.STALLED\.CHECK|native|module"):
        swept(server, ledger, "mail", executor="native")
    assert server.read("ZCARD", mail.keys.active) == 1


def test_a_ghost_is_removed_and_listed_nowhere(opened: Server, ledger: Ledger) -> None:
    mail = Queue(opened, "mail")
    opened.write("ZADD", mail.keys.active, opened.now_ms("mail") - 5, "JOB0STJaaaaaaa")
    report = swept(opened, ledger, "mail", executor="native")
    assert (report.ghosts, report.recovered, report.dead) == (1, 0, 0)
    assert opened.read("EXISTS", mail.keys.row("JOB0STJaaaaaaa")) == 0
