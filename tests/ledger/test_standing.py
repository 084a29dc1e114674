"""What the ledger keeps of what stands (holds, windows, requests, alerts, interruptions), and what it forgets."""

from __future__ import annotations

import dataclasses

import pytest

from emq_ops.ledger import alerts, deaths, holds, interruptions, requests, retention, runs
from emq_ops.ledger.holds import Hold, Window
from emq_ops.ledger.interruptions import Counted, Interruption
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import mint
from tests.ledger.made import NOW, death


def interruption(**more: object) -> Interruption:
    base = Interruption("mail", "restart", "a" * 40, "b" * 40, NOW - 5000, NOW, NOW + 100, census_ms=NOW + 100)
    return dataclasses.replace(base, **more)


def test_an_interruption_with_its_census(ledger: Ledger) -> None:
    jobs = [mint() for _ in range(3)]
    leases = [Counted(jobs[0], 1, NOW + 10), Counted(jobs[1], None, NOW + 20), Counted(jobs[2], 7, NOW + 30)]
    with ledger.write() as connection:
        number = interruptions.add(connection, interruption(in_flight=3), leases)
        assert interruptions.census_of(connection, number, [*jobs[:2], mint()]) == {
            jobs[0]: leases[0],
            jobs[1]: leases[1],
        }
        interruptions.settle(connection, number, {jobs[0]: "exempted", jobs[2]: "died"})
        found = interruptions.latest(connection, "mail")
        assert found is not None
        assert (found.exempted, found.recovered, found.died) == (1, 1, 1)
        assert interruptions.outcomes_of(connection, number) == {jobs[0]: "exempted", jobs[1]: None, jobs[2]: "died"}
        interruptions.add_vanished(connection, number, jobs[:2], "dead")
        interruptions.add_vanished(connection, number, jobs[1:2], "dead")
    [row] = interruptions.listing(ledger, "mail")
    assert row.vanished == 2
    assert interruptions.listing(ledger, "orders") == []


def test_contacts(ledger: Ledger) -> None:
    with ledger.write() as connection:
        interruptions.save_contact(connection, "mail", swept_ms=1)  # never seen: there is nothing to say
        assert interruptions.contact_of(connection, "mail") is None
        interruptions.save_contact(connection, "mail", run_id="r", replid="p", seen_ms=5, token=4)
        interruptions.save_contact(connection, "mail", swept_ms=9)
        interruptions.note_tokens(connection, {"mail": (6, 3)})
    interruptions.mark_lost(ledger, ["mail", "orders"])
    with ledger.read() as connection:
        found = interruptions.contact_of(connection, "mail")
    assert found is not None
    assert (found.seen_ms, found.swept_ms, found.token, found.went_back, found.lost) == (5, 9, 6, True, True)


def test_holds(ledger: Ledger) -> None:
    holds.hold(ledger, Hold("mail", NOW, NOW + 1000, "me"))
    holds.hold(ledger, Hold("mail", NOW, NOW + 5000, "you", "a reason"))
    with ledger.read() as connection:
        found = holds.hold_of(connection, "mail", NOW + 4999)
        assert found is not None
        assert (found.holder, found.why) == ("you", "a reason")
        assert holds.hold_of(connection, "mail", NOW + 5000) is None
        assert holds.hold_of(connection, "orders", NOW) is None
    assert holds.release(ledger, "mail")
    assert not holds.release(ledger, "mail")
    assert holds.all_holds(ledger) == []


def test_windows_and_selectors(ledger: Ledger) -> None:
    """C20: ``mail[1]`` is one queue and never ``mail1``."""
    for selector in ("*", "mail-*", "mail[1]"):
        holds.open_window(ledger, Window(selector, NOW, NOW + 1000))

    def covering(queue: str, since: int = 0) -> list[str]:
        with ledger.read() as connection:
            return [w.queues for w in holds.windows_of(connection, queue, since)]

    assert covering("mail-7") == ["*", "mail-*"]
    assert covering("mail[1]") == ["*", "mail[1]"]
    assert covering("mail1") == ["*"]
    assert covering("mail1", NOW + 1001) == []
    assert [w.queues for w in holds.close_windows(ledger, NOW + 10, "mail-*")] == ["mail-*"]
    assert len(holds.close_windows(ledger, NOW + 20)) == 2
    assert [w.end_ms for w in holds.all_windows(ledger)] == [NOW + 20, NOW + 10, NOW + 20]
    with pytest.raises(BadInputError, match="must end after it starts"):
        holds.open_window(ledger, Window("*", NOW, NOW))


def test_run_requests(ledger: Ledger) -> None:
    first = requests.ask(ledger, "sweep", "mail", {"policy": {"limit": 5}}, "cli")
    second = requests.ask(ledger, "trim", "orders", {}, "cli")
    assert [r.id for r in requests.waiting(ledger)] == [first, second]
    assert [r.id for r in requests.waiting(ledger, ["orders"])] == [second]
    assert requests.take(ledger, first, "leader")
    assert not requests.take(ledger, first, "another")
    assert not requests.withdraw(ledger, first)
    requests.answer(ledger, first, report={"dead": 3})
    found = requests.get(ledger, first)
    assert found is not None
    assert found.over
    assert (found.report, found.taken_by, found.options) == ({"dead": 3}, "leader", {"policy": {"limit": 5}})
    assert requests.take(ledger, second, "leader")
    assert requests.left_behind(ledger, ["orders"], "leader") == []  # still that one's own
    assert requests.left_behind(ledger, ["mail"], "next") == []
    [left] = requests.left_behind(ledger, ["orders"], "next")
    assert requests.put_back(ledger, left)
    assert not requests.put_back(ledger, left)
    assert requests.withdraw(ledger, second)
    assert requests.waiting(ledger) == []


def test_competitors_and_alerts(ledger: Ledger) -> None:
    with ledger.write() as connection:
        assert alerts.note_competitor(connection, "mail", alerts.RECOVERER, NOW, 2, {"jobs": []})
        assert not alerts.note_competitor(connection, "mail", alerts.RECOVERER, NOW + 5, 3, {"jobs": ["x"]})
        alerts.add_alert(connection, alerts.Alert("mail", "burst", "text", NOW, {"leases": 12}))
    [found] = alerts.competing(ledger, "mail")
    assert (found.times, found.first_ms, found.last_ms, found.evidence) == (5, NOW, NOW + 5, {"jobs": ["x"]})
    [alert] = alerts.listing(ledger)
    assert (alert.kind, alert.facts) == ("burst", {"leases": 12})
    assert alerts.listing(ledger, after=alert.id) == []


def test_retention_forgets_what_is_old_and_nothing_else(ledger: Ledger) -> None:
    year = 366 * 86_400_000
    old, dead, fresh = mint(), mint(), mint()
    with ledger.write() as connection:
        deaths.record(connection, "mail", [death(old, snapshot=b"p"), death(dead), death(fresh, snapshot=b"p")])
        deaths.close(connection, "mail", [old], deaths.TRIMMED, NOW)
        deaths.close(connection, "mail", [fresh], deaths.TRIMMED, NOW + year - 40 * 86_400_000)
        first = interruptions.add(connection, interruption(), [Counted(old, 1, NOW)])
        last = interruptions.add(connection, interruption(), [Counted(old, 1, NOW)])
        alerts.add_alert(connection, alerts.Alert("mail", "burst", "text", NOW))
    holds.open_window(ledger, Window("*", NOW, NOW + 1000))
    gone = retention.prune(ledger, NOW + year)
    told = {name: count for name, count in gone.items() if count}
    assert told == {"deaths": 1, "snapshots": 2, "census": 1, "interruptions": 1, "alerts": 1, "windows": 1}
    left = {d.job: d.snapshot for d in deaths.iterate(ledger)}
    assert left == {dead: None, fresh: None}
    assert [i.id for i in interruptions.listing(ledger)] == [last]
    assert first != last
    assert not any(retention.prune(ledger, NOW + year).values())


def test_retention_of_runs_and_requests_goes_by_the_hosts_clock(ledger: Ledger) -> None:
    run = runs.start(ledger, "sweep", "mail", holder="me")
    with ledger.write() as connection:
        runs.finish(connection, run, runs.DONE, counts={"dead": 1})
    requests.ask(ledger, "sweep", "mail", {}, "cli")
    assert not any(retention.prune(ledger, host_ms()).values())
    gone = retention.prune(ledger, host_ms() + 100 * 86_400_000)
    assert (gone["runs"], gone["requests"]) == (1, 1)
