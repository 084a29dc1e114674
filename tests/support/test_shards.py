"""Shards: together they are everything, each once, and none is much longer than another."""

from __future__ import annotations

import argparse

import pytest

from tests.support.shards import Shard


@pytest.mark.parametrize("count", [1, 3, 8])
def test_the_shards_are_everything_each_once(count: int) -> None:
    tests = {f"tests/test_{n}.py::test[{n}]": float(n % 7 == 0) * n for n in range(200)}
    parts = [Shard(number, count).of(tests) for number in range(1, count + 1)]
    assert sorted(test for part in parts for test in part) == sorted(tests)
    loads = [sum(tests[test] for test in part) for part in parts]
    assert max(loads) - min(loads) <= max(tests.values())


def test_a_test_stays_where_it_is_when_others_come_in_another_order() -> None:
    tests = {f"test_{n}": float(n % 5) for n in range(50)}
    assert Shard(2, 4).of(tests) == Shard(2, 4).of(dict(reversed(tests.items())))


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/", "-1/2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no shard"):
        Shard.parse(text)
