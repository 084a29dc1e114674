"""Repeatables fire: one occurrence each, compared and advanced in one step, whoever else is at it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest

from emq_ops.ledger import runs
from emq_ops.ledger.alerts import competing, newest
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.frame.order import Order
from emq_ops.passes.frame.refusal import PumpedError
from emq_ops.passes.promote import fire
from emq_ops.passes.promote.declared import PROMOTE, PromotePolicy
from emq_ops.passes.promote.report import PromoteReport
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import repeat
from emq_ops.protocol.transitions.repeat import DueRepeatable
from tests.support.passing import leading, run_by, until
from tests.support.pumps import other_pump

LANE = "GRP0SSBKAh61tG"
HOUR = 3_600_000


def pump(server: Server, ledger: Ledger, **policy: Any) -> PromoteReport:
    with leading(server, ledger, "mail") as fence:
        report: PromoteReport = run_by(PROMOTE, server, Order("mail", PromotePolicy(**policy)), ledger, fence)
        return report


def due_at(q: Queue, name: str) -> int:
    return int(q.server.read("ZSCORE", q.keys.repeat, name))


def rewind(q: Queue, *names: str, by: int = 10 * HOUR) -> None:
    """Makes them due for so long."""
    for name in names:
        q.server.write("ZADD", q.keys.repeat, q.server.now_ms(q.name) - by, name)
        q.server.write("HDEL", q.keys.repeat_marks, name)


def test_one_occurrence_after_any_gap_in_its_lane_or_flat(server: Server, ledger: Ledger, mail: Queue) -> None:
    repeat.replace(mail, "flat", HOUR, b"f")
    repeat.replace(mail, "laned", HOUR, b"l", lane=LANE)
    rewind(mail, "flat", "laned")
    before = server.now_ms("mail")
    report = pump(server, ledger)
    assert report.fired == len(report.fired_jobs) == 2
    [flat] = server.read("ZRANGE", mail.keys.pending, 0, -1)
    [laned] = server.read("ZRANGE", mail.keys.lane(LANE), 0, -1)
    rows = [server.read("HGETALL", mail.keys.row(job.decode())) for job in (flat, laned)]
    assert rows[0] == [b"state", b"pending", b"attempts", b"0", b"payload", b"f"]
    assert rows[1][-2:] == [b"group", LANE.encode()]
    assert server.read("LRANGE", mail.keys.ring, 0, -1) == [LANE.encode()]
    assert before + HOUR <= due_at(mail, "flat") <= server.now_ms("mail") + HOUR
    assert pump(server, ledger).fired == 0
    [_, run] = runs.latest(ledger)
    assert run.counts == {"fired": 2}


def test_of_two_that_read_the_same_score_one_admits(server: Server, mail: Queue) -> None:
    repeat.replace(mail, "tick", 1, b"t")
    [seen] = repeat.look(mail, mail.keys.repeat)[1]
    replies = mail.run_many(
        "repeat_fire", [(repeat.fire_keys(mail, job), repeat.fire_args(mail, seen, job)) for job in (mint(), mint())]
    )
    assert [repeat.fire_reply(reply)[0].name for reply in replies] == ["FIRED", "NOT_DUE"]
    assert server.read("ZCARD", mail.keys.pending) == 1


def test_what_cannot_fire_is_named_and_set_aside_and_the_others_run(
    server: Server, ledger: Ledger, mail: Queue
) -> None:
    bad = {"none": "", "zero": "0", "less": "-5", "half": "2.5", "word": "soon", "odd{name}\udcff": "x"}
    for name, every in bad.items():
        key = mail.keys.base.encode() + b"repeat:" + name.encode("utf-8", "surrogateescape")
        server.write("HSET", key, "template", "t", *(("every_ms", every) if every else ()))
        server.write("ZADD", mail.keys.repeat, 1_600_000_000_000, name.encode("utf-8", "surrogateescape"))
    server.write("HSET", mail.keys.repeatable("early"), "every_ms", "5", "template", "t")
    server.write("ZADD", mail.keys.repeat, 5, "early", 1_600_000_000_000, "hollow")
    repeat.replace(mail, "good", HOUR, b"g")
    with patch.object(fire, "SLICE", 3):
        report = pump(server, ledger)
    assert (report.fired, set(report.bad)) == (1, {*bad, "early"})
    assert len(report.notes) == len(report.bad)
    assert server.read("ZSCORE", mail.keys.repeat, "hollow") is None  # as recorded: without a hash it is cancelled
    aside = server.read("HGET", mail.keys.aside, "zero").decode()
    assert "every_ms is not positive" in aside
    assert PROMOTE.loaded.glance("mail", "").keys  # and what is named so is no reason to run again
    glance = PROMOTE.loaded.glance("mail", "")
    assert glance is not None
    from emq_ops.protocol.scripts import load

    assert glance.parse(server.run(load(glance.script), list(glance.keys), readonly=True)) == 0
    server.write("HSET", mail.keys.repeatable("zero"), "every_ms", HOUR)
    assert pump(server, ledger).fired == 1
    assert server.read("HEXISTS", mail.keys.aside, "zero") == 0


def test_by_the_calendar_in_its_zone(server: Server, ledger: Ledger, mail: Queue) -> None:
    repeat.replace_cron(mail, "nightly", "0 3 * * *", "Europe/Berlin", b"n", lane=LANE)
    assert pump(server, ledger).fired == 0  # its first instant is known now
    first = int(server.read("ZSCORE", mail.keys.calendar, "nightly"))
    assert first > server.now_ms("mail")
    assert datetime.fromtimestamp(first / 1000, UTC).minute == 0
    assert not repeat.replace_cron(mail, "nightly", "0 3 * * *", "Europe/Berlin", b"other")
    assert int(server.read("ZSCORE", mail.keys.calendar, "nightly")) == first
    server.write("ZADD", mail.keys.calendar, first - 40 * 24 * HOUR, "nightly")
    assert pump(server, ledger).fired == 1
    assert int(server.read("ZSCORE", mail.keys.calendar, "nightly")) == first
    assert server.read("EXISTS", mail.keys.repeat) == 0  # nothing that another pump would see
    assert repeat.replace(mail, "nightly", HOUR, b"n") is not None
    assert server.read("EXISTS", mail.keys.calendar, mail.keys.repeat_more("nightly")) == 0
    assert repeat.cancel(mail, "nightly")


@pytest.mark.parametrize(
    ("now", "zone", "then"),
    [
        ("2026-03-29T00:30:00", "Europe/Berlin", "2026-03-29T01:00:00"),  # 02:30 does not come: right after the gap
        ("2026-03-29T00:30:00", "UTC", "2026-03-29T02:30:00"),
        ("2026-10-25T00:30:00", "Europe/Berlin", "2026-10-26T01:30:00"),  # 02:30 came, and comes once
    ],
)
def test_the_next_instant_by_the_calendar(now: str, zone: str, then: str) -> None:
    one = DueRepeatable("r", b"0", "30 2 * * *", zone)
    at = int(datetime.fromisoformat(now + "+00:00").timestamp() * 1000)
    found = fire.following_ms(one, at)
    assert found is not None
    assert datetime.fromtimestamp(found / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") == then


def test_beside_another_pump_it_is_refused_unless_told(server: Server, ledger: Ledger, mail: Queue) -> None:
    repeat.replace(mail, "tick", HOUR, b"t")
    other_pump(mail, "tick")
    with pytest.raises(PumpedError, match="another pump"):
        pump(server, ledger)
    with pytest.raises(PumpedError):  # seen once, it is known for a day
        pump(server, ledger)
    assert [rival.kind for rival in competing(ledger, "mail")] == ["pump"]
    assert [one.kind for one in newest(ledger, 9)] == ["competitor"]
    [run] = runs.latest(ledger)
    assert (run.status, run.counts) == ("refused", {"times": 2}) or run.status == "refused"
    rewind(mail, "tick")
    assert pump(server, ledger, beside_pump=True).fired == 1


def test_our_own_hands_are_no_other_pump(server: Server, ledger: Ledger, mail: Queue) -> None:
    repeat.replace(mail, "tick", HOUR, b"t")
    assert pump(server, ledger).fired == 1
    repeat.skip(mail, "tick", 2 * HOUR)
    repeat.replace(mail, "tick", HOUR, b"u")
    repeat.cancel(mail, "tick")
    repeat.register(mail, "tick", HOUR, b"v")
    until(lambda: pump(server, ledger).fired == 1, "it fires again")
    assert competing(ledger, "mail") == []
