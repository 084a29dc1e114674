"""The record in the same step as the settlement: its id, its fields, and that neither comes without the other."""

from __future__ import annotations

import threading

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, DamagedError, EmqError, ServerError, StaleTokenError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import claims, enqueue, reads, recover
from emq_ops.protocol.transitions.settle import CompletionRecord, Failure, Retried, complete, retry
from tests.support.consuming import records
from tests.support.keyspace import dump
from tests.support.valkey import Valkey

LAST_MS = ids.EPOCH_MS + (1 << 41) - 1
"""The last millisecond that an id can name: in 2093."""


def claimed(q: Queue, group: str | None = None) -> claims.Claim:
    assert enqueue.enqueue(q, ids.mint(), b"x", group=group)
    found = claims.claim(q, 60_000) if group is None else claims.claim_lane(q, 60_000)
    assert found is not None
    return found


def record(outcome: str = "completed", node: int = 5, **fields: bytes | str) -> CompletionRecord:
    return CompletionRecord(outcome, 1_800_000_000_000, node, **fields)  # type: ignore[arg-type]  # its own fields, by name


def test_every_field_and_their_order(q: Queue) -> None:
    group = ids.mint("GRP")
    one, two = claimed(q, group), claimed(q)
    binary = bytes(range(256))
    assert complete(q, one.job, one.token, record=record(result=binary, group=group))
    assert (
        retry(q, two.job, two.token, Failure(b"boom", delay_ms=0, max_attempts=1), record=record("dead", error=b"boom"))
        is Retried.DEAD
    )
    first, second = records(q)
    assert list(first) == [b"id", b"job", b"outcome", b"attempts", b"group", b"result", b"started_at", b"settled_at"]
    assert first[b"result"] == binary
    assert first[b"group"] == group.encode()
    assert list(second) == [b"id", b"job", b"outcome", b"attempts", b"error", b"started_at", b"settled_at"]
    assert second[b"started_at"] == b"1800000000000"
    assert ids.parse(first[b"id"]).node == 5
    assert abs(int(second[b"settled_at"]) - q.server.now_ms(q.name)) < 2_000


def test_a_job_that_comes_again_is_not_recorded(q: Queue) -> None:
    claim = claimed(q)
    went = retry(
        q, claim.job, claim.token, Failure(b"e", delay_ms=0, max_attempts=2), record=record("dead", error=b"e")
    )
    assert went is Retried.SCHEDULED
    assert records(q) == []


def test_a_refused_settlement_records_nothing(q: Queue) -> None:
    claim = claimed(q)
    before = dump(q.server)
    with pytest.raises(StaleTokenError):
        complete(q, claim.job, claim.token + 1, record=record())
    with pytest.raises(StaleTokenError):
        retry(q, claim.job, 7, Failure(b"e", delay_ms=0, max_attempts=1), record=record("dead"))
    with pytest.raises(BadInputError):
        complete(q, claim.job, claim.token, record=record(node=1024))
    assert dump(q.server) == before
    gone = ids.mint()
    assert not complete(q, gone, 1, record=record())
    assert dump(q.server) == before


def seen(q: Queue, last: str) -> str:
    """The stream id that a record gets on a stream whose last generated id is `last`."""
    key = q.keys.stream("completions")
    q.server.write("DEL", key)
    q.server.write("XADD", key, last, "odd", "entry")
    q.server.write("XTRIM", key, "MAXLEN", 0)
    claim = claimed(q)
    assert complete(q, claim.job, claim.token, record=record(node=5))
    [fields] = records(q)
    return ids.parse(fields[b"id"]).stream_id


OWN = 5 << 12


@pytest.mark.parametrize(
    ("last", "next_one"),
    [
        (f"{LAST_MS - 1}-{ids.MAX_LOW}", f"{LAST_MS}-{OWN}"),
        (f"{LAST_MS}-0", f"{LAST_MS}-1"),
        (f"{LAST_MS}-{ids.MAX_LOW - 1}", f"{LAST_MS}-{ids.MAX_LOW}"),
        (f"{LAST_MS - 9}-{ids.MAX_LOW + 1}", f"{LAST_MS - 8}-{OWN}"),
        (f"{LAST_MS - 9}-18446744073709551615", f"{LAST_MS - 8}-{OWN}"),
        (f"{LAST_MS - 9}-18446744073709551614", f"{LAST_MS - 8}-{OWN}"),
    ],
)
def test_the_id_follows_a_last_id_that_lies_ahead_of_the_clock(q: Queue, last: str, next_one: str) -> None:
    assert seen(q, last) == next_one


@pytest.mark.parametrize("last", ["1-0", "0-1", "1-18446744073709551615", f"{ids.EPOCH_MS - 1}-9", f"{ids.EPOCH_MS}-0"])
def test_the_clock_counts_where_the_last_id_is_older(q: Queue, last: str) -> None:
    before = q.server.now_ms(q.name)
    ms, low = ids.split_stream_id(seen(q, last))
    assert before <= ms <= q.server.now_ms(q.name)
    assert low == OWN


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ms=st.integers(min_value=ids.EPOCH_MS + (1 << 40), max_value=LAST_MS - 1),
    low=st.integers(min_value=0, max_value=ids.MAX_LOW - 1),
)
@example(ms=LAST_MS - 1, low=ids.MAX_LOW - 1)
def test_base_62_is_exact_for_every_number(q: Queue, ms: int, low: int) -> None:
    assert seen(q, f"{ms}-{low}") == f"{ms}-{low + 1}"  # `records` compares stream id and EVT id digit by digit


@pytest.mark.parametrize(
    "last",
    [f"{LAST_MS}-{ids.MAX_LOW}", f"{LAST_MS + 1}-0", "1795958693983123-0", f"{ids.MAX_STREAM_PART}-0"],
)
def test_a_stream_that_no_evt_id_can_follow_refuses_the_settlement_whole(q: Queue, last: str) -> None:
    q.server.write("XADD", q.keys.stream("completions"), last, "odd", "entry")
    claim = claimed(q)
    before = dump(q.server)
    with pytest.raises(DamagedError, match="no EVT id can follow"):
        complete(q, claim.job, claim.token, record=record())
    with pytest.raises(DamagedError, match="no EVT id can follow"):
        retry(q, claim.job, claim.token, Failure(b"e", delay_ms=0, max_attempts=1), record=record("dead"))
    assert dump(q.server) == before
    assert (
        retry(q, claim.job, claim.token, Failure(b"e", delay_ms=0, max_attempts=9), record=record("dead"))
        is Retried.SCHEDULED
    )


def test_a_stream_key_of_another_type_refuses_the_settlement_whole(q: Queue) -> None:
    q.server.write("SET", q.keys.stream("completions"), "x")
    claim = claimed(q)
    before = dump(q.server)
    with pytest.raises(DamagedError, match="is a string, not a stream"):
        complete(q, claim.job, claim.token, record=record())
    assert dump(q.server) == before


def test_without_the_right_to_add_the_settlement_is_refused_whole(valkey: Valkey, q: Queue) -> None:
    claim = claimed(q)
    with valkey.client() as admin:
        admin.execute_command("ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", "-xadd")
    before = dump(q.server)
    with connect(f"unix://poor:pw@{valkey.socket}") as poor, pytest.raises(ServerError) as refused:
        complete(Queue(poor, q.name), claim.job, claim.token, record=record())
    assert refused.value.code == "NOPERM"
    assert dump(q.server) == before


def test_at_the_memory_limit_a_settlement_is_whole_or_refused_whole(valkey: Valkey, q: Queue) -> None:
    held = [claimed(q) for _ in range(3)]
    late = claimed(q)
    q.server.write("ZREM", q.keys.active, late.job)  # its lease was collected, and it waits again
    q.server.write("ZADD", q.keys.pending, 0, late.job)
    with valkey.client() as admin:
        admin.config_set("maxmemory", 1_000_000)
        admin.config_set("maxmemory-policy", "noeviction")
        try:
            for claim in [*held, late]:
                before = dump(q.server), len(records(q))
                try:
                    assert complete(q, claim.job, claim.token, release=True, record=record(result=b"r" * 1000))
                except EmqError:
                    assert (dump(q.server), len(records(q))) == before
                else:
                    assert reads.job_state(q, claim.job) is reads.JobState.ABSENT
                    assert len(records(q)) == before[1] + 1
        finally:
            admin.config_set("maxmemory", 0)


def test_many_writers_and_a_foreign_one_share_a_stream_and_no_record_is_dropped(valkey: Valkey, q: Queue) -> None:
    """The foreign writer mints on its own, by a clock that is ahead at times, as the other system's do: where it is
    refused it mints again, above the last one. Ours never are."""
    ours, theirs = 5, 60
    enqueue.enqueue_many(q, [enqueue.NewJob(ids.mint(), b"x") for _ in range(ours * 100)])
    held = claims.claim_batch(q, 60_000, ours * 100)
    faults: list[BaseException] = []
    refused = threading.Semaphore(0)

    def settle(part: list[claims.Claim], node: int) -> None:
        try:
            with connect(valkey.url) as server:
                for claim in part:
                    assert complete(Queue(server, q.name), claim.job, claim.token, record=record(node=node))
        except BaseException as fault:  # told by the test's own thread
            faults.append(fault)

    def write(node: int) -> None:
        key = q.keys.stream("completions")
        try:
            with connect(valkey.url) as server:
                minter = ids.Minter(node)
                for n in range(theirs):
                    ahead = 40 if n % 20 == 0 else 0
                    while True:
                        minted = ids.parse(minter.mint("EVT"))
                        if ahead:
                            minted = ids.BrandedId("EVT", minted.snowflake + (ahead << 22))
                        try:
                            server.write("XADD", key, minted.stream_id, "id", minted.text, "job", f"{node}-{n}")
                            break
                        except ServerError:
                            refused.release()
        except BaseException as fault:  # told by the test's own thread
            faults.append(fault)

    threads = [threading.Thread(target=settle, args=(held[i::ours], i * 200)) for i in range(ours)]
    threads += [threading.Thread(target=write, args=(node,)) for node in (77, 1023)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    jobs = [fields[b"job"].decode() for fields in records(q)]
    assert len(jobs) == len(set(jobs)) == ours * 100 + 2 * theirs
    assert set(jobs) >= {claim.job for claim in held}
    assert refused.acquire(blocking=False), "the foreign writer was never refused: nothing was shown"


def test_a_retry_sent_again_after_the_job_died_does_not_let_it_die_twice(q: Queue) -> None:
    claim = claimed(q)
    for _ in range(2):
        went = retry(
            q,
            claim.job,
            claim.token,
            Failure(b"e", delay_ms=0, max_attempts=1),
            release=True,
            record=record("dead", error=b"e"),
        )
        assert went is Retried.DEAD
    assert len(records(q)) == 1
    assert reads.counts(q) == reads.Counts(0, 0, 0, 1, 0, 1)


def test_release_takes_the_marker_of_the_claimer_away(q: Queue) -> None:
    for settle in (
        lambda c: complete(q, c.job, c.token, release=True),
        lambda c: retry(q, c.job, c.token, Failure(b"e", delay_ms=0, max_attempts=1), release=True),
        lambda c: retry(q, c.job, c.token, Failure(b"e", delay_ms=0, max_attempts=9), release=True),
    ):
        claim = claimed(q)
        q.server.write("SET", q.keys.book(claim.job, "lock"), "1")
        settle(claim)
        assert q.server.read("EXISTS", q.keys.book(claim.job, "lock")) == 0
    assert records(q) == []


def test_a_settlement_of_ours_leaves_no_entry_of_a_job_that_was_dead_lettered_while_it_ran(q: Queue) -> None:
    """As recorded, a bare one leaves it."""
    for release in (False, True):
        claim = claimed(q)
        q.server.write("ZADD", q.keys.active, q.server.now_ms(q.name) - 5, claim.job)  # it lapsed
        assert recover.sweep(q, 1).dead == [claim.job]
        assert complete(q, claim.job, claim.token, release=release)
        assert q.server.read("ZRANGE", q.keys.dead, 0, -1) == ([] if release else [claim.job.encode()])
        q.server.write("UNLINK", q.keys.dead)
