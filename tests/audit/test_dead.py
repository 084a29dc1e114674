"""``audit dead``: groups, causes, suspects, bursts, and what vanished."""

from __future__ import annotations

import pytest

from emq_ops.audit.dead import AuditOptions, audit_dead
from emq_ops.audit.page import dead_page
from emq_ops.audit.spread import Histogram, age_class
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.selection import DeadSelection, EmptySelectionError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import jobs, recover
from tests.audit.pages import check_page
from tests.audit.working import failed, lapse, stalled, swept
from tests.support.valkey import Valkey


def test_causes_and_filters(server: Server, ledger: Ledger, valkey: Valkey) -> None:
    q = Queue(server, "orders")
    by_error = [failed(q, b"HTTP 503"), failed(q, b"refused 10.0.0.1:1"), failed(q, b"refused 10.0.0.2:2")]
    by_stall = stalled(q, 2)
    assert swept(server, ledger).dead == 2
    audit = audit_dead(server, ["orders"], DeadSelection(), ledger)
    assert [(g.cause, g.error, g.jobs) for g in audit.ranked()] == [
        ("error", "refused #ip:#", 2),
        ("stalled", "stalled", 2),
        ("error", "HTTP 503", 1),
    ]
    assert (audit.dead, audit.looked, audit.unrecorded, audit.suspects) == (5, 5, 0, [])
    assert audit.ages["< 1 min"] == 5
    # A job that died of its handler is never "stalled", though it stalled before.
    server.write("HSET", q.keys.row(by_error[0]), "stalled", "1")
    for cause, wanted in (("error", by_error), ("stalled", by_stall)):
        got: list[str] = []
        audit_dead(
            server, ["orders"], DeadSelection(causes=(cause,)), ledger, each=lambda j, _, got=got: got.append(j.job)
        )
        assert sorted(got) == sorted(wanted)
    with pytest.raises(EmptySelectionError):
        audit_dead(server, ["orders"], DeadSelection(causes=("flow",)), ledger)
    with pytest.raises(EmptySelectionError):
        audit_dead(server, ["orders"], DeadSelection(older_ms=3_600_000), ledger)
    audit = audit_dead(server, ["orders"], DeadSelection(newer_ms=3_600_000), ledger)
    assert (audit.dead, audit.unrecorded) == (5, 1)  # one died "again", which nobody saw before now
    assert audit_dead(server, ["nothing"], DeadSelection(), ledger).dead == 0


def test_restart_suspects_and_bursts(durable: Valkey, ledger: Ledger) -> None:
    with connect(durable.url) as server:
        swept(server, ledger)  # the first contact
        q = Queue(server, "orders")
        before = stalled(q, 12)
        lapse(q, before, -600)
    durable.restart()
    with connect(durable.url) as server:
        q = Queue(server, "orders")
        while swept(server, ledger, restart="count").dead == 0:  # the first makes the census
            pass
        fresh = stalled(q, 1)
        lapse(q, fresh, 3_600_000)  # long before the restart, however slow this is: it is none of its making
        assert swept(server, ledger, restart="count").dead == 1
        audit = audit_dead(server, ["orders"], DeadSelection(), ledger)
        assert {one.job for one in audit.suspects} == set(before)
        assert all(one.sure and "of the life before the restart" in one.evidence for one in audit.suspects)
        [burst] = audit.bursts
        assert (burst.leases, burst.died, burst.across) == (12, 12, 12)
        assert set(burst.jobs) == set(before)
        only = audit_dead(server, ["orders"], DeadSelection(), ledger, AuditOptions(only_suspects=True))
        assert only.dead == 12
        assert fresh[0] not in {job for group in only.groups.values() for job in group.examples}
        page = check_page(dead_page(audit))
        assert "in flight across an interruption" in page.text
        assert burst.run in page.text


def test_a_worker_host_that_went_away_is_a_burst_and_no_suspect(server: Server, ledger: Ledger) -> None:
    q = Queue(server, "orders")
    gone = stalled(q, 15)
    report = swept(server, ledger)
    audit = audit_dead(server, ["orders"], DeadSelection(), ledger)
    [burst] = audit.bursts
    assert (burst.run, burst.leases, burst.across) == (report.run, 15, 0)
    assert set(burst.jobs) == set(gone)
    assert "a worker host went away?" in burst.evidence
    assert audit.suspects == []
    assert audit_dead(server, ["orders"], DeadSelection(), ledger, AuditOptions(burst=16)).bursts == []
    assert audit_dead(server, ["orders"], DeadSelection(killed_by=report.run), ledger).dead == 15


def test_deaths_by_others_right_after_a_restart_are_suspected_weakly(durable: Valkey, ledger: Ledger) -> None:
    with connect(durable.url) as server:
        swept(server, ledger)
        taken = stalled(Queue(server, "orders"), 2)
    durable.restart()
    with connect(durable.url) as server:
        recover.sweep(Queue(server, "orders"))  # a worker's own sweep, before any pass of ours
        assert swept(server, ledger).found_dead == 2
        audit = audit_dead(server, ["orders"], DeadSelection(), ledger)
        assert {one.job for one in audit.suspects} == set(taken)
        assert not any(one.sure for one in audit.suspects)
        assert "killed by no pass of ours" in audit.suspects[0].evidence


def test_what_vanished(ledger: Ledger) -> None:
    """A server that comes back without what it had: the ledger knows who is missing."""
    with Valkey() as forgetful:
        with connect(forgetful.url) as server:
            q = Queue(server, "orders")
            gone = stalled(q, 3)
            swept(server, ledger)
        forgetful.restart()
        with connect(forgetful.url) as server:
            swept(server, ledger)
            swept(server, ledger)
            audit = audit_dead(server, ["orders"], DeadSelection(), ledger)
            assert {row["job"] for row in audit.vanished} == set(gone)
            assert audit.dead == 0
            assert "Vanished" in check_page(dead_page(audit)).text


def test_an_audit_while_the_dead_set_changes(server: Server, ledger: Ledger) -> None:
    """Jobs that leave or die while pages are read: none twice, and those that stay are all there."""
    q = Queue(server, "orders")
    stay = [failed(q, b"x") for _ in range(30)]
    leave = [failed(q, b"y") for _ in range(30)]
    seen: list[str] = []

    def each(job: object, _why: object) -> None:
        seen.append(job.job)  # type: ignore[attr-defined]  # a DeadJob
        if leave:
            jobs.requeue(q, leave.pop())
            failed(Queue(server, "other"), b"z")

    audit_dead(server, ["orders"], DeadSelection(), ledger, each=each)
    assert len(seen) == len(set(seen))
    assert set(stay) <= set(seen)


def test_histogram_and_ages() -> None:
    histogram = Histogram()
    for n in range(5000):
        histogram.add(1_700_000_000_000 + n * 60_000, "error")
    histogram.add(1_600_000_000_000, "stalled")
    assert sum(sum(c.values()) for c in histogram.bins.values()) == 5001
    span = (max(histogram.bins) - min(histogram.bins)) // histogram.width_ms + 1
    assert span <= 200
    assert histogram.kinds() == ["error", "stalled"]
    assert [age_class(ms) for ms in (None, 0, 59_999, 60_000, 10**12)] == [
        "not recorded",
        "< 1 min",
        "< 1 min",
        "< 10 min",
        "older",
    ]
