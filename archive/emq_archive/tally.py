"""What the completions that go by say of the jobs: how many ended how, how long they waited and took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emq_archive.arrow import pa, pc
from emq_archive.chunk import Chunk
from emq_archive.columns import Picker, as_number, as_text
from emq_ops.protocol.ids import ALPHABET, EPOCH_MS, LOW_BITS

STREAM = "completions"
BOUNDS_MS = (10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 3_600_000)
"""Upper bounds of the buckets; above the last there is one more."""
OUTCOMES = ("completed", "cancelled", "dead")
"""As the wire has them; others are counted together, as ``other``."""
_DIGITS = [letter.encode("ascii") for letter in ALPHABET]
_DIGITS_OF_ID = 11
_PREFIX = b"JOB"
_MOST_MS = 10**11
"""Three years: what a record says beyond that is taken for as much, so that sums stay numbers."""


@dataclass(slots=True)
class Spread:
    """How many values lie in each bucket of BOUNDS_MS (upper bound included), and their sum (ms)."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    sum_ms: int = 0

    def add(self, values: Any) -> None:
        """Adds `values` (int64 ms); nulls are left out, and what is below 0 (clocks apart) counts as 0."""
        values = pc.max_element_wise(values.drop_null(), pa.scalar(0, pa.int64()))
        values = pc.min_element_wise(values, pa.scalar(_MOST_MS, pa.int64()))
        if not len(values):
            return
        below = 0
        for place, bound in enumerate(BOUNDS_MS):
            upto = pc.sum(pc.less_equal(values, bound)).as_py() or 0
            self.counts[place] += upto - below
            below = upto
        self.counts[-1] += len(values) - below
        self.sum_ms += pc.sum(values).as_py() or 0


@dataclass(slots=True)
class Tally:
    """Of a cycle's new completions: `outcomes`; `waits`: from a job's mint to its start, of those that one attempt
    ended (a delay that was asked for is part of it); `durations`: from the last start to the end."""

    outcomes: dict[str, int] = field(default_factory=dict)
    waits: Spread = field(default_factory=Spread)
    durations: Spread = field(default_factory=Spread)

    def add(self, chunk: Chunk) -> None:
        """Adds records. A field that is not there, or no number, leaves its record out of what needs it."""
        if not len(chunk):
            return
        picker = Picker(chunk)
        for pair in as_text(picker.get(b"outcome")).value_counts().to_pylist():
            name = pair["values"] if pair["values"] in OUTCOMES else "other"
            self.outcomes[name] = self.outcomes.get(name, 0) + pair["counts"]
        started = as_number(picker.get(b"started_at"))
        self.durations.add(_difference(as_number(picker.get(b"settled_at")), started))
        first = pc.equal(as_number(picker.get(b"attempts")), 1)
        begun = pc.if_else(first, started, pa.scalar(None, pa.int64()))
        self.waits.add(_difference(begun, _minted(picker.get(b"job"))))


def _difference(later: Any, earlier: Any) -> Any:
    """Null where either is null; numbers of up to 18 digits do not overflow."""
    return pc.subtract(later, earlier)


def _minted(jobs: Any) -> Any:
    """When each job's id was minted, unix ms (int64); null for what is no id."""
    well = pc.and_(pc.equal(pc.binary_length(jobs), len(_PREFIX) + _DIGITS_OF_ID), pc.starts_with(jobs, _PREFIX))
    jobs = pc.if_else(well, jobs, pa.scalar(None, jobs.type))
    number: Any = pa.scalar(0, pa.int64())
    digits = pa.array(_DIGITS, pa.binary())
    for place in range(len(_PREFIX), len(_PREFIX) + _DIGITS_OF_ID):
        digit = pc.index_in(pc.binary_slice(jobs, place, place + 1), value_set=digits, skip_nulls=True)
        number = pc.add(pc.multiply(number, 62), digit.cast(pa.int64()))  # wraps beyond 2^63, which no id is
    return pc.if_else(
        pc.greater_equal(number, 0), pc.add(pc.shift_right(number, LOW_BITS), EPOCH_MS), pa.scalar(None, pa.int64())
    )
