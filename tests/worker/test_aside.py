"""One bad job holds up nobody: it is set aside where it stands, named, counted, and forgotten once it is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import aside, claims, enqueue, reads, recover
from emq_ops.worker import Consumer, ConsumerSettings
from emq_ops.worker.events import SetAside
from tests.support.consuming import Told, put_all
from tests.support.valkey import Valkey


def hollow(q: Queue, job: str) -> None:
    q.server.write("HSET", q.keys.row(job), "state", "pending")


def gone(q: Queue, job: str) -> None:
    q.server.write("UNLINK", q.keys.row(job))


def text(q: Queue, job: str) -> None:
    q.server.write("SET", q.keys.row(job), "x")


def wrong_attempts(q: Queue, job: str) -> None:
    q.server.write("HSET", q.keys.row(job), "state", "pending", "attempts", "many", "payload", "{}")


BAD = (hollow, gone, text, wrong_attempts)


def put_bad(q: Queue, key: str) -> dict[str, str]:
    """One job of each bad kind; they are the oldest."""
    found = {}
    for spoil in BAD:
        job = ids.mint()
        spoil(q, job)
        q.server.write("ZADD", key, 0, job)
        found[spoil.__name__] = job
    return found


@pytest.mark.parametrize("lane", [False, True], ids=["flat", "lane"])
def test_good_jobs_behind_bad_ones_are_worked(q: Queue, lane: bool) -> None:
    group = ids.mint("GRP") if lane else None
    bad = put_bad(q, q.keys.lane(group) if group else q.keys.pending)
    put_all(q, b"1", b"2", b"3", group=group)
    told = Told()
    report = Consumer(
        q, lambda job: job.payload, ConsumerSettings(cancel=False, beat=20, concurrency=2), on_event=told
    ).run(until_idle=True)
    assert report.completed == 3
    assert report.aside == len(bad)
    assert {event.member for event in told.of(SetAside)} == set(bad.values())
    named = aside.listing(q)
    assert set(named) == set(bad.values())
    assert "no attempts" in named[bad["hollow"]]
    place = f"g:{group}:pending" if lane else "pending"
    assert all(reason.startswith(f"{place}: ") for reason in named.values())
    key = q.keys.lane(group) if group else q.keys.pending
    assert set(q.server.read("ZRANGE", key, 0, -1)) == {job.encode() for job in bad.values()}  # they stay


def test_a_lane_of_bad_jobs_alone_is_turned_past(q: Queue) -> None:
    stuck, fine = sorted(ids.mint("GRP") for _ in range(2))
    put_bad(q, q.keys.lane(stuck))
    q.server.write("RPUSH", q.keys.ring, stuck)
    put_all(q, b"1", b"2", group=fine)
    found = claims.claim_lane_batch(q, 30_000, 10)
    assert [claim.group for claim in found] == [fine, fine]
    assert q.server.read("LRANGE", q.keys.ring, 0, -1) == [stuck.encode()]
    assert claims.claim_lane_batch(q, 30_000, 10) == []


def test_at_most_a_thousand_are_named(q: Queue) -> None:
    for _ in range(3):
        q.server.write("ZADD", q.keys.pending, *[x for _ in range(500) for x in (0, ids.mint())])
    put_all(q, b"good")
    assert claims.claim(q, 30_000) is not None
    assert aside.count(q) == 1_000


def test_what_is_not_there_any_more_is_forgotten(q: Queue) -> None:
    bad = put_bad(q, q.keys.pending)
    assert claims.claim(q, 30_000) is None
    q.server.write("ZREM", q.keys.pending, bad["gone"])
    assert aside.tidy(q) == 1
    assert set(aside.listing(q)) == set(bad.values()) - {bad["gone"]}


ODD_SCORES = [b"1796000000", b"inf", b"0", b"-1", b"-inf", b"1796000000000000"]


def put_odd(q: Queue) -> tuple[list[str], list[str]]:
    """Three lapsed leases beside leases with odd scores."""
    lapsed, odd = put_all(q, b"1", b"2", b"3"), put_all(q, *ODD_SCORES)
    while claims.claim(q, 30_000):
        pass
    late = q.server.now_ms(q.name) - 5_000
    q.server.write("ZADD", q.keys.active, *[x for job in lapsed for x in (late, job)])
    q.server.write("ZADD", q.keys.active, *[x for pair in zip(ODD_SCORES, odd, strict=True) for x in pair])
    return lapsed, odd


@pytest.mark.parametrize("call", [recover.reap, lambda q: recover.sweep(q, 5)], ids=["reap", "sweep"])
def test_leases_beside_odd_scores_are_recovered(q: Queue, call: Callable[[Queue], Any]) -> None:
    lapsed, odd = put_odd(q)
    call(q)
    assert [reads.job_state(q, job).value for job in lapsed] == ["pending"] * 3
    assert set(aside.listing(q)) == set(odd)


def test_a_sweep_of_the_command_line_goes_on_and_doctor_mends(
    q: Queue, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lapsed, odd = put_odd(q)
    options = ["--url", valkey.url, "--state", "sqlite:///state.db", "--output", "json"]
    assert main([*options, "sweep", q.name, "--max-stalled", "5"]) == 0
    assert json.loads(capsys.readouterr().out)["recovered"] == 3
    assert [reads.job_state(q, job).value for job in lapsed] == ["pending"] * 3
    assert set(aside.listing(q)) == set(odd)
    main([*options, "doctor", q.name, "--fix", "--yes"])
    mended = json.loads(capsys.readouterr().out)
    assert {row["subject"] for row in mended["findings"] if row["kind"] == "odd_score"} == set(odd)
    assert mended["left"] == []
    scores = [float(score) for score in q.server.read("ZRANGE", q.keys.active, 0, -1, "WITHSCORES")[1::2]]
    assert all(1.5e12 < score < 4e12 for score in scores)


def test_due_jobs_beside_odd_ones_are_promoted(q: Queue) -> None:
    due, odd = ids.mint(), ids.mint()
    for job in (due, odd):
        enqueue.schedule_in(q, job, b"x", 0)
    q.server.write("ZADD", q.keys.schedule, 1_796_000_000, odd)
    assert recover.promote(q) == 1
    assert set(aside.listing(q)) == {odd}
