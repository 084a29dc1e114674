"""Interruptions of real servers: noticed, told apart, with a census at first contact."""

from __future__ import annotations

import pytest

from emq_ops.audit.restarts import audit_restarts
from emq_ops.ledger import alerts, interruptions
from emq_ops.ledger.interruptions import Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Event
from emq_ops.passes.observe.interruptions import notice, take_census
from emq_ops.passes.observe.queue_state import observe, observe_many, restored
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.errors import DamagedError, EmqError, FenceError
from emq_ops.protocol.ids import parse
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import settle
from emq_ops.protocol.transitions.enqueue import enqueue
from tests.support.passing import add, dead_of, kill_row, lapse, leading, stall, sweep, swept, take, until
from tests.support.valkey import Valkey


def noticed(server: Server, ledger: Ledger, lease_ms: int = 30_000) -> Interruption | None:
    with leading(server, ledger, "mail"):
        return notice(server, ledger, observe(server, "mail"), lease_ms)


def up_ms(server: Server) -> int:
    """How long the server says that it has been up."""
    return int(server.info("mail", "server")["uptime_in_seconds"]) * 1000


def test_what_an_observation_says(server: Server, mail: Queue) -> None:
    add(mail, 5)
    take(mail, 2)
    lapse(mail)
    take(mail, 1, 60_000)
    kill_row(mail, 3)
    before = up_ms(server)
    sight = observe(server, "mail")
    after = up_ms(server)
    assert (sight.due, sight.active, sight.dead, sight.failed, sight.unrecorded) == (2, 3, 3, 3, False)
    assert sight.earliest_ms is not None
    assert sight.earliest_ms < sight.now_ms
    assert before - 1000 <= sight.now_ms - sight.born_ms <= after + 1000  # the server counts whole seconds
    assert sight.run_id == server.run_id("mail")


def test_many_looks_and_one_that_fails(server: Server, mail: Queue) -> None:
    add(mail)
    server.write("SET", "emq:{broken}:active", "no zset")
    found = observe_many(server, ["mail", "broken", "none"])
    assert isinstance(found["broken"], DamagedError)
    others = [found["mail"], found["none"]]
    assert [None if isinstance(one, EmqError) else one.active for one in others] == [0, 0]


def test_the_first_contact_with_a_server_that_was_never_away(server: Server, ledger: Ledger, mail: Queue) -> None:
    add(mail)
    assert not restored(server, "mail")
    assert noticed(server, ledger) is None
    assert noticed(server, ledger) is None


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_first_contact_after_a_restart_from_disk(durable: Valkey, ledger: Ledger, rewritten: bool) -> None:
    with connect(durable.url) as server:
        mail = Queue(server, "mail")
        jobs = add(mail, 3)
        take(mail, 2, 60_000)
        if rewritten:
            server.write("BGREWRITEAOF")
            until(lambda: server.info("mail", "persistence")["aof_rewrite_in_progress"] == "0", "the rewrite")
        durable.restart()
        assert restored(server, "mail")
        found = noticed(server, ledger)
        assert found is not None
        assert (found.kind, found.run_before, found.in_flight) == ("restart", None, 2)
        assert found.started_ms == parse(jobs[1]).unix_ms <= found.ended_ms  # the last sign of the earlier life
        assert found.evidence == {"loaded_from_disk": True, "started_by": "newest job in flight"}
        assert found.census_ms is not None
        assert noticed(server, ledger) == found
        with ledger.read() as connection:
            assert set(interruptions.census_of(connection, found.id, jobs)) == set(jobs[:2])


def test_a_restart_and_a_census_that_comes_too_late(durable: Valkey, ledger: Ledger) -> None:
    with connect(durable.url) as server:
        mail = Queue(server, "mail")
        add(mail, 3)
        assert noticed(server, ledger) is None
        take(mail, 3, 60_000)
        before = server.now_ms("mail")
        durable.restart()
        until(lambda: server.now_ms("mail") > observe(server, "mail").born_ms + 20, "some life")
        found = noticed(server, ledger, lease_ms=1)
        assert found is not None
        assert (found.kind, found.census_ms, found.in_flight) == ("restart", None, 3)
        assert found.started_ms is not None
        assert found.started_ms <= before <= found.ended_ms + 1000
        assert found.horizon_ms == found.ended_ms + 1


def test_an_outage_that_we_saw(server: Server, ledger: Ledger, mail: Queue) -> None:
    jobs = add(mail, 2)
    take(mail, 2, 60_000)
    assert noticed(server, ledger) is None
    interruptions.mark_lost(ledger, ["mail"])
    found = noticed(server, ledger)
    assert found is not None
    assert (found.kind, found.run_before, found.run_after) == ("outage", found.run_after, found.run_before)
    assert found.in_flight == len(jobs)
    assert noticed(server, ledger) == found


def test_a_failover_to_a_replica(ledger: Ledger) -> None:
    with Valkey(repl_diskless_sync_delay=0) as primary, connect(primary.url) as server, Valkey() as other:
        # A replica follows over TCP only.
        port = _free_port(server)
        with other.client() as replica, connect(other.url) as promoted:
            replica.execute_command("REPLICAOF", "127.0.0.1", port)
            until(lambda: replica.info("replication").get("master_link_status") == "up", "the link")
            mail = Queue(server, "mail")
            jobs = add(mail, 2)
            take(mail, 2, 60_000)
            assert noticed(server, ledger) is None
            until(lambda: replica.zcard(mail.keys.active) == 2, "the replica")
            primary.kill()
            replica.execute_command("REPLICAOF", "NO", "ONE")
            found = noticed(promoted, ledger)
            assert found is not None
            assert (found.kind, found.in_flight) == ("failover", 2)
            assert found.run_after == promoted.run_id("mail")
            with ledger.read() as connection:
                assert set(interruptions.census_of(connection, found.id, jobs)) == set(jobs)


def _free_port(server: Server) -> int:
    for port in range(21_000, 21_200):
        try:
            server.write("CONFIG", "SET", "port", port)
        except EmqError:
            continue
        return port
    raise AssertionError("no free port")


def test_a_keyspace_that_went_back_in_time(ledger: Ledger) -> None:
    with Valkey() as forgetful, connect(forgetful.url) as server:
        mail = Queue(server, "mail")
        jobs = kill_row(mail, 3)
        swept(server, ledger, "mail")
        forgetful.restart()
        kept = kill_row(mail, 1)
        events: list[Event] = []
        with leading(server, ledger, "mail"):
            found = notice(server, ledger, observe(server, "mail"), 30_000, events.append)
        assert found is not None
        assert (found.kind, found.went_back) == ("restart", True)
        assert "token" in found.evidence
        assert [event.facts().get("kind") for event in events] == ["restart", "went_back"]
        report = swept(server, ledger, "mail")
        assert report.found_dead == 1
        with ledger.read() as connection:
            assert interruptions.vanished_of(connection, found.id) == dict.fromkeys(jobs, "dead")
        assert dead_of(mail) == kept


def test_a_leader_whose_lease_went_with_the_keyspace_tells_what_vanished(ledger: Ledger) -> None:
    """As a daemon does it: its pass sees the new life first, is fenced off, and only then takes the lease anew."""
    with Valkey() as forgetful, connect(forgetful.url) as server:
        mail = Queue(server, "mail")
        lost = kill_row(mail, 3)
        flown = add(mail, 2)
        take(mail, 2, 60_000)
        with leading(server, ledger, "mail") as fence:
            sweep(server, "mail", StalledPolicy(), ledger, fence)
            forgetful.restart()
            with pytest.raises(FenceError):
                sweep(server, "mail", StalledPolicy(), ledger, fence)
        swept(server, ledger, "mail")
        [told] = audit_restarts(ledger).outcomes
        assert (told.cut.kind, told.cut.went_back) == ("restart", True)
        assert told.cut.evidence["token"] == {"known": fence.token, "found": 0}
        assert told.jobs == {"vanished": sorted([*lost, *flown])}
        assert [alert.kind for alert in alerts.listing(ledger)] == ["went_back"]


def test_jobs_in_flight_that_went_with_the_keyspace_have_vanished(ledger: Ledger) -> None:
    """The last pass saw them; those that completed before it are not missed, nor those that are there again."""
    with Valkey() as forgetful, connect(forgetful.url) as server:
        mail = Queue(server, "mail")
        done, *mine = add(mail, 6)
        assert take(mail, 6, 60_000) == [done, *mine]
        settle.complete(mail, done, 1)
        swept(server, ledger, "mail")
        forgetful.restart()
        enqueue(mail, mine[0], b"again")  # by its producer
        swept(server, ledger, "mail")
        [told] = audit_restarts(ledger).outcomes
        assert told.as_row()["jobs"] == {"vanished": mine[1:]}
        assert (told.cut.kind, told.cut.in_flight, told.cut.vanished) == ("restart", 0, 4)
        swept(server, ledger, "mail")
        assert audit_restarts(ledger).outcomes == [told]


def test_two_servers_behind_one_name(server: Server, ledger: Ledger, mail: Queue) -> None:
    """Each is swept as it stands, nothing is buried for the other's sake, and it is said."""
    with Valkey() as other, connect(other.url) as second:
        until(lambda: observe(second, "mail").uptime_s >= 2, "that both are older than the first contact for certain")
        ends: list[tuple[int, int]] = []
        for turn in range(4):
            here = server if turn % 2 == 0 else second
            stall(Queue(here, "mail"))
            report = swept(here, ledger, "mail", max_stalled=1)
            ends.append((report.exempted, report.dead))
        assert ends == [(0, 1), (1, 0), (1, 0), (1, 0)]  # claims before the census can't be told apart
        assert [cut.kind for cut in interruptions.listing(ledger)] == ["failover"] * 3
        kinds = [alert.kind for alert in alerts.listing(ledger)]
        assert (kinds.count("went_back"), kinds.count("two_servers")) == (3, 2)  # at the first turn nobody can know


def test_a_flush_under_a_living_server_is_a_rewind(server: Server, ledger: Ledger, mail: Queue) -> None:
    add(mail)
    assert noticed(server, ledger) is None
    server.write("FLUSHALL")
    found = noticed(server, ledger)
    assert found is not None
    assert (found.kind, found.went_back) == ("rewind", True)
    assert noticed(server, ledger) == found


@pytest.mark.parametrize("size", [0, 3, 1500])
def test_a_census_is_whole(server: Server, mail: Queue, size: int) -> None:
    now = server.now_ms("mail")
    jobs = {f"JOB0STJ{i:07d}": now + i for i in range(size)}
    for job, deadline in jobs.items():
        server.write("ZADD", mail.keys.active, deadline, job)
        server.write("HSET", mail.keys.row(job), "attempts", 1 + deadline % 3)
    server.write("ZADD", mail.keys.active, now, "garbage", now, "GRP0STJaaaaaaa", now, "JOB0STJzzzzzzz")
    found = {lease.job: (lease.token, lease.deadline_ms) for lease in take_census(server, "mail")}
    assert found.pop("JOB0STJzzzzzzz") == (None, now)  # a ghost has no token
    assert found == {job: (1 + deadline % 3, deadline) for job, deadline in jobs.items()}
