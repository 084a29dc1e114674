"""The stream consumer: each entry is handled by somebody, own pending once, poison goes aside, slow ones are kept."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import groups, streams
from emq_ops.protocol.transitions.groups import Member
from emq_ops.worker import Dead, StreamConsumer, StreamEntry, StreamSettings
from emq_ops.worker.stream_events import EntrySettled
from tests.support.consuming import Told, eventually

STREAM = "orders"


def fill(q: Queue, count: int) -> list[str]:
    return streams.append_many(q, STREAM, [[("n", str(n))] for n in range(count)])


def settings(consumer: str = "w1", **more: Any) -> StreamSettings:
    return StreamSettings(**{"group": "g", "consumer": consumer, "start": "head", "beat": 20, **more})


def consume(q: Queue, handler: Any, **more: Any) -> Told:
    """Consumes until there is nothing to read."""
    told = Told()
    StreamConsumer(q, STREAM, handler, settings(**more), on_event=told).run(until_idle=True)
    return told


def outcomes(told: Told) -> list[tuple[str, str, int]]:
    return [(event.entry, event.outcome, event.attempts) for event in told.of(EntrySettled)]


def pending(q: Queue, group: str = "g") -> int:
    return groups.listing(q, STREAM)[0].pending if groups.listing(q, STREAM) else 0


def fails(_: StreamEntry) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("count", [1, 100])
def test_what_a_restart_left_is_read_once_and_the_trimmed_is_acknowledged(q: Queue, count: int) -> None:
    """Though each fails again, and pages end everywhere, new entries are reached."""
    first, gone, third, fresh = fill(q, 4)
    groups.create(q, STREAM, "g", "0")
    assert len(groups.fresh(q, Member(STREAM, "g", "w1"), 3)) == 3
    [trimmed] = [r.stream_id for r in streams.read(q, STREAM) if r.event == gone]
    q.server.write("XDEL", q.keys.stream(STREAM), trimmed)
    told = consume(q, fails, count=count, min_idle=60_000)
    wanted = [(first, "failed", 2), (gone, "gone", 0), (third, "failed", 2), (fresh, "failed", 1)]
    assert sorted(outcomes(told)) == sorted(wanted)
    assert pending(q) == 3


def test_poison_goes_to_the_dead_letter_stream_once(q: Queue) -> None:
    bad, good, fatal = fill(q, 3)

    def handle(entry: StreamEntry) -> Any:
        if entry.id == bad:
            raise ValueError("poison")
        return Dead("at once") if entry.id == fatal else None

    told = consume(q, handle, attempts=3, min_idle=0)
    assert [one for one in outcomes(told) if one[0] == bad] == [
        (bad, "failed", 1),
        (bad, "failed", 2),
        (bad, "dead", 3),
    ]
    assert (good, "handled", 1) in outcomes(told)
    buried = [dict(one.fields) for one in streams.read(q, f"{STREAM}.dead")]
    assert {one[b"dead_entry"].decode(): (one[b"dead_error"], one[b"dead_attempts"], one[b"n"]) for one in buried} == {
        bad: (b"ValueError: poison", b"3", b"0"),
        fatal: (b"at once", b"1", b"2"),
    }
    assert len(buried) == 2
    assert pending(q) == 0


def test_an_entry_that_kills_its_consumers_is_buried_without_another_try(q: Queue) -> None:
    [killer] = fill(q, 1)
    groups.create(q, STREAM, "g", "0")
    groups.fresh(q, Member(STREAM, "g", "w1"), 1)
    for n in range(2):
        groups.take_over(q, Member(STREAM, "g", f"x{n}"), 0, "0-0", 10)
    told = consume(q, fails, consumer="w2", attempts=3, min_idle=0)
    assert outcomes(told) == [(killer, "dead", 4)]


def test_a_slow_handler_keeps_its_entries_and_a_dead_ones_are_taken_over(q: Queue) -> None:
    slow, after, left = fill(q, 3)
    groups.create(q, STREAM, "g", "0")
    go, began = threading.Event(), threading.Event()

    def handle(entry: StreamEntry) -> None:
        began.set()
        assert go.wait(20)

    ours = Told()
    first = StreamConsumer(q, STREAM, handle, settings(min_idle=300, count=2), on_event=ours)
    thread = threading.Thread(target=first.run)
    thread.start()
    assert began.wait(20)
    groups.fresh(q, Member(STREAM, "g", "killed"), 1)
    other = Told()
    second = StreamConsumer(q, STREAM, lambda _: None, settings("w2", min_idle=300), on_event=other)
    beside = threading.Thread(target=second.run)
    beside.start()
    eventually(lambda: outcomes(other), "taken over")
    time.sleep(0.5)  # longer than an entry may stand still: those of the slow one are in hand, and so do not
    go.set()
    eventually(lambda: len(outcomes(ours)) == 2, "handled")
    for consumer, running in ((first, thread), (second, beside)):
        consumer.stop()
        running.join()
    assert outcomes(ours) == [(slow, "handled", 1), (after, "handled", 1)]
    assert outcomes(other) == [(left, "handled", 2)]
    assert pending(q) == 0


def test_a_group_that_is_destroyed_goes_on_where_it_was(q: Queue) -> None:
    seen: list[str] = []
    consumer = StreamConsumer(q, STREAM, lambda entry: seen.append(entry.id), settings(), on_event=Told())
    before = fill(q, 2)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    eventually(lambda: seen == before, "read")
    q.server.write("XGROUP", "DESTROY", q.keys.stream(STREAM), "g")
    after = fill(q, 2)
    eventually(lambda: seen == before + after, "read on")
    consumer.stop()
    thread.join()


@pytest.mark.parametrize(
    "bad",
    [
        {"group": ""},
        {"group": "a\nb"},
        {"start": "tail"},
        {"count": 0},
        {"attempts": 0},
        {"dead": "a{b"},
        {"min_idle": -1},
    ],
)
def test_bad_settings_are_named(bad: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        settings(**bad)
