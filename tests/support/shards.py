"""A stable part of the tests: the same test is in the same part on every machine and in any order of collection."""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Shard:
    """The `number`-th (from 1) of `count` parts."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """``2/8``. Raises argparse.ArgumentTypeError."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
            raise argparse.ArgumentTypeError(f"'{text}' is no shard: K/N, K from 1 to N")
        return cls(int(number), int(count))

    def of(self, tests: Mapping[str, float]) -> set[str]:
        """Which of the tests (id to minutes) are in this part. Those of several minutes are dealt out longest first,
        each to the part that has least; the others go by their ids alone."""
        loads = [0.0] * self.count
        parts = dict[str, int]()
        for test, minutes in sorted(tests.items(), key=lambda pair: (-pair[1], pair[0])):
            if minutes:
                parts[test] = loads.index(min(loads))
                loads[parts[test]] += minutes
            else:
                parts[test] = zlib.crc32(test.encode()) % self.count
        return {test for test, part in parts.items() if part == self.number - 1}
