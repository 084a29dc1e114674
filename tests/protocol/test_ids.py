"""Ids: the recorded vectors, minting, refusing, time bounds."""

from __future__ import annotations

import json
import os
import threading
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, KindError
from emq_ops.protocol.slots import slot
from tests.support.keyspace import recorded

VECTORS = json.loads(recorded("ids.json").read_bytes())
EPOCH = ids.EPOCH_MS


@pytest.mark.parametrize("vector", VECTORS["ids"], ids=lambda v: v["id"])
def test_recorded_id(vector: dict[str, object]) -> None:
    parsed = ids.parse(str(vector["id"]))
    assert parsed.snowflake == vector["snowflake"]
    assert parsed.text == vector["id"]
    assert (parsed.unix_ms, parsed.node, parsed.sequence) == (vector["unix_ms"], vector["node"], vector["seq"])
    assert parsed.stream_id == vector["stream_id"]
    assert ids.from_stream_id(str(vector["stream_id"])) == parsed
    assert ids.parse(str(vector["id"]).encode()) == parsed


@pytest.mark.parametrize("vector", VECTORS["malformed"], ids=lambda v: repr(v["id"]))
def test_malformed_is_refused(vector: dict[str, str]) -> None:
    for value in (vector["id"], vector["id"].encode("utf-8"), vector["id"].encode("latin-1")):
        assert not ids.is_valid(value)
        with pytest.raises(BadInputError) as refused:
            ids.job_id(value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("vector", VECTORS["slots"], ids=lambda v: v["key"])
def test_recorded_slot(vector: dict[str, object]) -> None:
    assert slot(str(vector["key"])) == vector["slot"]


@pytest.mark.parametrize("vector", VECTORS["bounds"], ids=lambda v: v["at"])
def test_recorded_time_bounds(vector: dict[str, str]) -> None:
    at = datetime.fromisoformat(vector["at"].replace("Z", "+00:00"))
    ms = (int(at.timestamp()) * 1000) + at.microsecond // 1000
    assert ids.floor_stream_id(ms) == vector["minid_floor"]
    assert ids.ceil_stream_id(ms) == vector["maxid_ceil"]


@given(st.integers(0, ids.MAX_SNOWFLAKE))
def test_every_number_survives_text_and_stream_id(number: int) -> None:
    branded = ids.BrandedId("EVT", number)
    assert ids.parse(branded.text) == branded
    assert ids.from_stream_id(branded.stream_id) == branded


@given(st.integers(0, ids.MAX_SNOWFLAKE), st.integers(0, ids.MAX_SNOWFLAKE))
def test_byte_order_is_number_order(a: int, b: int) -> None:
    assert (ids.encode62(a).encode() < ids.encode62(b).encode()) == (a < b)


@given(st.binary(max_size=20))
def test_any_bytes_are_parsed_or_refused(value: bytes) -> None:
    if ids.is_valid(value):
        assert ids.parse(value).text.encode() == value
    else:
        with pytest.raises(BadInputError):
            ids.parse(value)


def test_wrong_namespace_is_its_own_error() -> None:
    with pytest.raises(KindError):
        ids.job_id("EVT00000000001")
    with pytest.raises(KindError):
        ids.group_id("JOB00000000001")


def test_c13_stream_ids_are_unsigned_64_bit() -> None:
    assert ids.split_stream_id("1-18446744073709551615") == (1, 18446744073709551615)
    assert ids.split_stream_id(b"18446744073709551615-0") == (18446744073709551615, 0)
    assert ids.next_stream_id("100-4") == "100-5"
    assert ids.next_stream_id("100-18446744073709551615") == "101-0"
    for bad in ("1", "1-", "-1", "1-18446744073709551616", "18446744073709551616-0", "a-b", "1-1 ", "1--1", "1-+1"):
        with pytest.raises(BadInputError):
            ids.split_stream_id(bad)
    assert ids.from_stream_id("1704067200000-4194304") is None
    assert ids.from_stream_id("1704067199999-0") is None
    assert ids.from_stream_id("3903090455552-0") is None


def test_mint_is_monotone_when_the_clock_steps_back() -> None:
    clock = iter([EPOCH + 50, EPOCH + 10, EPOCH + 10, EPOCH + 60])
    minter = ids.Minter(node=7, clock=lambda: next(clock))
    minted = [ids.parse(minter.mint("JOB")) for _ in range(4)]
    assert minted == sorted(minted)
    assert [m.unix_ms - EPOCH for m in minted] == [50, 50, 50, 60]
    assert {m.node for m in minted} == {7}


def test_mint_borrows_past_4096_a_millisecond() -> None:
    minter = ids.Minter(node=0, clock=lambda: EPOCH + 5)
    minted = [ids.parse(minter.mint("JOB")) for _ in range(4096 * 2 + 1)]
    assert [m.unix_ms - EPOCH for m in (minted[0], minted[4095], minted[4096], minted[-1])] == [5, 5, 6, 7]
    assert len(set(minted)) == len(minted)
    assert minted == sorted(minted)


def test_mint_is_thread_safe() -> None:
    minter = ids.Minter()
    found: list[list[str]] = [[] for _ in range(8)]

    def work(into: list[str]) -> None:
        into.extend(minter.mint("JOB") for _ in range(2000))

    threads = [threading.Thread(target=work, args=(into,)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [i for one in found for i in one]
    assert len(set(everything)) == 16_000
    assert all(one == sorted(one) for one in found)


def test_forked_children_mint_other_ids() -> None:
    ids.mint()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, ids.mint().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 14).decode()
    os.close(reader)
    os.close(writer)
    # Same millisecond or not, the child's minter has drawn a node of its own: one in 1,024 may coincide, never the id.
    assert ids.mint() != theirs


@pytest.mark.parametrize(("node", "namespace"), [(1024, "JOB"), (-1, "JOB"), (0, "job"), (0, "JOBS"), (0, "ÉOB")])
def test_minter_refuses(node: int, namespace: str) -> None:
    with pytest.raises(BadInputError):
        ids.Minter(node=node).mint(namespace)


def test_a_clock_before_the_epoch_is_refused() -> None:
    with pytest.raises(BadInputError):
        ids.Minter(clock=lambda: EPOCH - 1).mint("JOB")


def test_bounds_enclose_every_id_of_their_millisecond() -> None:
    low, high = ids.min_id("JOB", EPOCH + 9), ids.max_id("JOB", EPOCH + 9)
    assert ids.parse(low).unix_ms == ids.parse(high).unix_ms == EPOCH + 9
    assert ids.parse(high).snowflake - ids.parse(low).snowflake == ids.MAX_LOW
    assert ids.min_id("JOB", 0) == "JOB00000000000"
    assert ids.max_id("JOB", 1 << 62) == "JOBAzL8n0Y58m7"
