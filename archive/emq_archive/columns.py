"""The usual fields of many records at once: what `codec.columns_of` says of one, column by column."""

from __future__ import annotations

from typing import Any

from emq_archive.arrow import pa, pc
from emq_archive.chunk import Chunk, counting
from emq_archive.codec import MAX_TIME_MS, as_utf8, columns_of

_MAX_EVT = b"EVTAzL8n0Y58m7"


class Picker:
    """Finds the first field of a name in each record of a chunk."""

    def __init__(self, chunk: Chunk) -> None:
        self._size = len(chunk)
        self._values = chunk.values
        coded = pc.dictionary_encode(chunk.names)
        self._codes = coded.indices
        self._known = {name: i for i, name in enumerate(coded.dictionary.to_pylist())}
        pairs = pa.ListArray.from_arrays(chunk.ends, pa.nulls(len(chunk.names)))
        self._owner = pc.list_parent_indices(pairs)
        self._records: Any = None

    def get(self, name: bytes) -> Any:
        """Binary, one a record, null where it has no such field."""
        code = self._known.get(name)
        if code is None:
            return pa.nulls(self._size, pa.binary())
        at = pc.indices_nonzero(pc.equal(self._codes, code))
        owners = self._owner.take(at)
        if self._records is None:
            self._records = counting(self._size).cast(owners.type)
        if len(at) != self._size or not owners.equals(self._records):
            # index_in answers the first place, so the first of a repeated name.
            at = at.take(pc.index_in(self._records, value_set=owners))
        return self._values.take(at)


def job_ends(chunk: Chunk) -> tuple[bytes | None, bytes | None]:
    """Between which texts the ``job`` fields are; None where there is none."""
    found = pc.min_max(chunk.values.take(pc.indices_nonzero(pc.equal(chunk.names, b"job")))).as_py()
    return found["min"], found["max"]


def jobs_of(chunk: Chunk) -> Any:
    """The ``job`` field of each record, as it stands (binary)."""
    return Picker(chunk).get(b"job")


def as_text(values: Any) -> Any:
    """Binary as text; null where it is not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([as_utf8(value) for value in values.to_pylist()], pa.string())


def as_number(values: Any) -> Any:
    """Texts of digits as int64; null for anything else."""
    text = as_text(values)
    if text.null_count == len(text):
        return pa.nulls(len(text), pa.int64())
    plain = pc.and_(pc.string_is_ascii(text), pc.and_(pc.ascii_is_decimal(text), pc.less(pc.binary_length(text), 19)))
    if pc.all(pc.fill_null(plain, True)).as_py():
        return text.cast(pa.int64())
    return pa.array([columns_of(0, [b"attempts", v or b""]).attempts for v in values.to_pylist()], pa.int64())


def as_evt(values: Any) -> Any:
    """Well-formed ``EVT`` ids as text; null for anything else."""
    text = as_text(values)
    good = pc.and_(
        pc.and_(pc.string_is_ascii(text), pc.ascii_is_alnum(text)),
        pc.and_(
            pc.and_(pc.equal(pc.binary_length(text), 14), pc.starts_with(text, "EVT")),
            pc.less_equal(text, _MAX_EVT.decode("ascii")),
        ),
    )
    good = pc.fill_null(good, False)
    return text if pc.all(good).as_py() else pc.if_else(good, text, pa.scalar(None, pa.string()))


def times_of(chunk: Chunk, kind: str, picker: Picker) -> Any:
    """When each record happened, unix ms (int64)."""
    clamped = pc.min_element_wise(chunk.ms, pa.scalar(MAX_TIME_MS, pa.uint64())).cast(pa.int64())
    if kind == "stream":
        return clamped
    most = pa.scalar(MAX_TIME_MS, pa.int64())
    seen = pc.min_element_wise(as_number(picker.get(b"fact:seen_at")), most, skip_nulls=False)
    return pc.coalesce(seen, clamped)
