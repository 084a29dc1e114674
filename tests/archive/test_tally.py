"""What completions say, column by column, beside the same record by record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emq_archive.chunk import Chunk
from emq_archive.tally import BOUNDS_MS, Spread, Tally
from emq_ops.protocol import ids

Fields = list[bytes]


def spread(values: list[int]) -> Spread:
    found = Spread()
    for value in (min(max(0, value), 10**11) for value in values):
        found.counts[sum(value > bound for bound in BOUNDS_MS)] += 1
        found.sum_ms += value
    return found


def number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) < 19 else None


def one_by_one(records: list[Fields]) -> Tally:
    out, waits, durations = Tally(), [], []
    for flat in records:
        fields = dict(reversed(list(zip(flat[::2], flat[1::2], strict=True))))
        outcome = fields.get(b"outcome")
        name = outcome.decode() if outcome in (b"completed", b"cancelled", b"dead") else "other"
        out.outcomes[name] = out.outcomes.get(name, 0) + 1
        started, settled = number(fields.get(b"started_at")), number(fields.get(b"settled_at"))
        job = fields.get(b"job", b"")
        if started is not None and settled is not None:
            durations.append(settled - started)
        if started is not None and number(fields.get(b"attempts")) == 1 and ids.is_valid(job) and job[:3] == b"JOB":
            waits.append(started - ids.parse(job.decode()).unix_ms)
    out.waits, out.durations = spread(waits), spread(durations)
    return out


JOBS = st.one_of(
    st.integers(0, ids.MAX_SNOWFLAKE).map(lambda n: ids.BrandedId("JOB", n).text.encode()),
    st.sampled_from(
        [b"", b"JOB", b"JOBzzzzzzzzzzz", b"EVT00000000000", b"JOB0000000000\xff", b"JOB00000000-00", b"\xff"]
    ),
)
NUMBERS = st.one_of(
    st.integers(0, 10**13).map(lambda n: b"%d" % n), st.sampled_from([b"1", b"x", b"-5", b"9" * 18, b""])
)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        b"job": JOBS,
        b"outcome": st.sampled_from([b"completed", b"dead", b"cancelled", b"odd", b"\xff"]),
        b"attempts": st.sampled_from([b"1", b"2", b"one"]),
        b"started_at": NUMBERS,
        b"settled_at": NUMBERS,
    },
).map(lambda fields: [part for pair in fields.items() for part in pair] or [b"x", b"y"])


@given(st.lists(RECORDS, min_size=1, max_size=20))
def test_it_counts_as_one_would_by_hand(records: list[Fields]) -> None:
    tally = Tally()
    tally.add(Chunk.of([(f"{n}-0", fields) for n, fields in enumerate(records, 1)]))
    assert tally == one_by_one(records)
