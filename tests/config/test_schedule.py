"""Triggers: cron's own rules, clock changes, and what is done about missed runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emq_ops.config.windows import sections_of, windows
from emq_ops.policy.schedule import Schedule
from emq_ops.policy.triggers import Cron, Interval, Trigger, between, parse_every

NEW_YORK = "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(every: str, after: str, count: int) -> list[str]:
    trigger = parse_every(every)
    instant, out = at(after), []
    for _ in range(count):
        instant = trigger.next_fire(instant)
        out.append(instant.strftime("%m-%d %H:%M"))
    return out


@pytest.mark.parametrize("day", ["0", "7", "sun", "SUN"])
def test_c02_sunday_is_0_and_7(day: str) -> None:
    assert fires(f"0 3 * * {day}", "2024-03-06T00:00", 1) == ["03-10 03:00"]


def test_c02_weekdays_and_or_of_day_fields() -> None:
    assert fires("0 3 * * 1-5", "2024-03-09T00:00", 5) == [f"03-{d} 03:00" for d in range(11, 16)]
    assert fires("0 0 13 * 5", "2024-03-06T00:00", 2) == ["03-08 00:00", "03-13 00:00"]


@pytest.mark.parametrize(
    ("every", "after", "expected"),
    [
        pytest.param("0 0 * * *", "2024-03-09T12:00", ["03-10 05:00", "03-11 04:00", "03-12 04:00"], id="a"),
        pytest.param("0 0 * * mon", "2024-03-08T17:00", ["03-11 04:00", "03-18 04:00"], id="b"),
        pytest.param("30 1 * * *", "2024-11-03T00:00", ["11-03 05:30", "11-04 06:30"], id="c"),
        pytest.param("30 1 * * *", "2024-11-03T06:10", ["11-04 06:30"], id="c, asked within the repeated hour"),
        pytest.param(
            "*/30 * * * *",
            "2024-11-03T04:45",
            ["11-03 05:00", "11-03 05:30", "11-03 06:00", "11-03 06:30", "11-03 07:00", "11-03 07:30"],
            id="d",
        ),
        pytest.param("30 2 * * *", "2024-03-10T00:00", ["03-10 07:00", "03-11 06:30"], id="e"),
        pytest.param(
            "0,30 2 * * *", "2024-03-10T00:00", ["03-10 07:00", "03-11 06:00"], id="two runs in the gap are one"
        ),
    ],
)
def test_c07_clock_changes(every: str, after: str, expected: list[str]) -> None:
    assert fires(f"{every} {NEW_YORK}", after, len(expected)) == expected


@pytest.mark.parametrize(
    ("every", "after", "expected"),
    [
        pytest.param(
            "15 2 * * * Australia/Lord_Howe",
            "2024-10-04T00:00",
            ["10-04 15:45", "10-05 15:30", "10-06 15:15"],
            id="half an hour is left out",
        ),
        pytest.param(
            "45 1 * * * Australia/Lord_Howe",
            "2024-04-05T00:00",
            ["04-05 14:45", "04-06 14:45", "04-07 15:15"],
            id="half an hour comes twice",
        ),
        pytest.param(
            "*/30 * * * * Australia/Lord_Howe",
            "2024-04-06T14:00",
            ["04-06 14:30", "04-06 15:00", "04-06 15:30"],
            id="every 30 real minutes all the same",
        ),
        pytest.param("0 0 * * * Asia/Kathmandu", "2024-04-05T00:00", ["04-05 18:15", "04-06 18:15"], id="5 h 45 min"),
        pytest.param("0 3 30 * * Pacific/Apia", "2011-12-01T00:00", ["12-30 10:00", "01-29 13:00"], id="no such day"),
        pytest.param("0 0 * * * Pacific/Apia", "2011-12-28T12:00", ["12-29 10:00", "12-30 10:00"], id="a day left out"),
    ],
)
def test_c07_odd_zones(every: str, after: str, expected: list[str]) -> None:
    assert fires(every, after, len(expected)) == expected


def test_three_ways_to_name_a_zone() -> None:
    one = parse_every(f"0 3 * * * {NEW_YORK}")
    assert one == parse_every("0 3 * * *", NEW_YORK) == parse_every(f"CRON_TZ={NEW_YORK} 0 3 * * *")
    assert one.text == f"0 3 * * * {NEW_YORK}"
    assert parse_every("@daily").text == "0 0 * * *"


@given(
    st.sampled_from(
        ["*/7 * * * *", "30 1 * * *", "0 */5 * * *", "15 2 * * 0", "0 0 1 * *", "59 23 31 * *", "0 0 * * 1#1"]
    ),
    st.sampled_from(["UTC", NEW_YORK, "Australia/Lord_Howe", "Asia/Beirut", "Africa/Casablanca"]),
    st.datetimes(datetime(2023, 1, 1), datetime(2027, 12, 31)),
)
@settings(max_examples=150, deadline=None)
def test_next_fire_moves_forward_and_leaves_nothing_out(line: str, zone: str, start: datetime) -> None:
    trigger = parse_every(line, zone)
    after = start.replace(tzinfo=UTC)
    first = trigger.next_fire(after)
    assert first > after
    assert first.second == 0
    # Asked from anywhere before it, the answer is the same: nothing lies in between.
    middle = after + (first - after) / 2
    assert trigger.next_fire(middle) == first
    assert trigger.next_fire(first - timedelta(seconds=1)) == first
    assert trigger.next_fire(first) > first
    local = first.astimezone(ZoneInfo(zone))
    if "1#1" in line:
        assert (local.weekday(), local.day <= 7) == (0, True)


DAILY = Schedule(Cron("0 3 * * *"), max_late_ms=15 * 60_000)


def test_c08_late_within_the_deadline_runs_once() -> None:
    due = DAILY.due(at("2024-05-01T03:00"), at("2024-05-02T03:10"))
    assert [(at("2024-05-02T03:10") - r).total_seconds() for r in due.runs] == [600]
    assert (due.skipped, due.missed) == (0, 0)
    assert due.following == at("2024-05-03T03:00")


def test_c08_too_late_is_one_missed_run() -> None:
    due = DAILY.due(at("2024-05-01T03:00"), at("2024-05-02T03:20"))
    assert (due.runs, due.missed, due.latest) == ((), 1, at("2024-05-02T03:00"))
    assert due.following == at("2024-05-03T03:00")
    assert DAILY.due(due.latest, at("2024-05-02T03:21")).missed == 0


def test_c08_one_catch_up_run_not_six() -> None:
    sweep = Schedule(parse_every("5m"))
    due = sweep.due(at("2024-05-01T10:00"), at("2024-05-01T10:30"))
    assert due.runs == (at("2024-05-01T10:30"),)
    assert due.skipped == 5
    assert due.following == at("2024-05-01T10:35")
    every = Schedule(parse_every("5m"), coalesce=False).due(at("2024-05-01T10:00"), at("2024-05-01T10:30"))
    assert len(every.runs) == 6


def test_c09_an_hourly_interval_survives_restarts() -> None:
    """Up for 50 minutes at a time over four hours: what was run last is remembered, so at least three runs happen."""
    hourly = Schedule(parse_every("1h"))
    last, runs = at("2024-05-01T00:00"), 0
    for boot in range(5):
        started = at("2024-05-01T00:00") + timedelta(minutes=50 * boot)
        for minute in range(50):
            due = hourly.due(last, started + timedelta(minutes=minute))
            runs += len(due.runs)
            last = due.latest
    assert runs >= 3


def test_a_year_of_missed_minutes_is_seen_to_quickly() -> None:
    due = Schedule(parse_every("* * * * *")).due(at("2023-01-01T00:00"), at("2024-01-01T00:00:30"))
    assert due.runs == (at("2024-01-01T00:00"),)
    assert due.skipped == 9_999


@settings(deadline=None)
@given(st.integers(10, 10_000_000), st.integers(0, 10**9), st.booleans(), st.one_of(st.none(), st.integers(0, 10**7)))
def test_due_agrees_with_counting(every: int, gap: int, coalesce: bool, max_late: int | None) -> None:
    """Against plain counting of instants, for gaps of at most a few thousand of them."""
    gap = min(gap, every * 2000)
    schedule = Schedule(Interval(every), max_late_ms=max_late, coalesce=coalesce)
    last = at("2024-05-01T00:00")
    now = last + timedelta(milliseconds=gap)
    instants = list(between(schedule.trigger, last, now))
    due = schedule.due(last, now, limit=10_000)
    in_time = [i for i in instants if max_late is None or now - i <= timedelta(milliseconds=max_late)]
    assert list(due.runs) == (in_time[-1:] if coalesce else in_time)
    assert len(due.runs) + due.skipped + due.missed == len(instants)
    assert due.latest == (instants[-1] if instants else last)
    assert due.following > now


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 600_000), st.integers(1_000, 600_000), st.text(max_size=5))
def test_a_run_is_late_only_from_when_jitter_puts_it_off_to(after: int, jitter: int, most: int, name: str) -> None:
    schedule = Schedule(parse_every("0 3 * * *"), jitter_ms=jitter, max_late_ms=most)
    instant = at("2024-05-02T03:00")
    begins = instant + schedule.delay(name, instant)
    last = at("2024-05-01T03:00")
    ms = timedelta(milliseconds=1)
    in_time = schedule.due(last, begins + ms * min(after, most), task=name)
    assert (in_time.runs, in_time.missed) == ((instant,), 0)
    too_late = schedule.due(last, begins + ms * (most + 1 + after), task=name)
    assert (too_late.runs, too_late.missed, too_late.latest) == ((), 1, instant)


WINDOW = {"queues": "*", "cron": "0 3 * * *", "zone": "UTC", "for": "30m", "from": None, "to": None}


@pytest.mark.parametrize(
    "said", [{"cron": "0 3 * * * Europe/Berlin"}, {"zone": "Europe/Berlin"}, {"zone": "${ZONE}"}, {"cron": "@daily"}]
)
def test_a_window_opens_by_a_zone_in_its_line_or_beside_it(said: dict[str, str]) -> None:
    [section] = sections_of({"maintenance": [{**WINDOW, **said}]}, {"ZONE": "Europe/Berlin"})
    opens = 0 if "@daily" in said.values() else 1  # 03:00 in Berlin in summer is 01:00
    now = int(at(f"2024-05-02T0{opens}:10").timestamp() * 1000)
    found = windows([section], now)
    assert max(window.start_ms for window in found) == now - 600_000
    assert all(window.end_ms - window.start_ms == 1_800_000 for window in found)
    assert windows([section], now - 700_000)[-1].start_ms == now - 600_000 - 86_400_000


def test_jitter_is_the_same_on_every_host_and_spread() -> None:
    schedule = Schedule(parse_every("1m"), jitter_ms=10_000)
    instant = at("2024-05-01T00:00")
    delays = {schedule.delay(f"q{i}/stalled", instant) for i in range(200)}
    assert schedule.delay("q1/stalled", instant) == schedule.delay("q1/stalled", instant)
    assert all(timedelta(0) <= d <= timedelta(seconds=10) for d in delays)
    assert len(delays) > 150


def test_triggers_say_what_they_are() -> None:
    trigger: Trigger = parse_every("90s")
    assert trigger.text == "90s"
    assert parse_every("1h30m").text == "90m"
    with pytest.raises(ValueError, match="not one that can come"):
        parse_every("0 0 31 2 *")
