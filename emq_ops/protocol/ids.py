"""Branded ids: three capitals and eleven base-62 digits of a 63-bit snowflake (docs/protocol.md, *Identities*).

``ms since 2024-01-01 << 22 | node (10 bits) << 12 | sequence (12 bits)``. Within a namespace, byte order is mint
order. The same number names a stream entry: ``<unix ms>-<low 22 bits>``.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from emq_ops.protocol.errors import BadInputError, KindError, one_line

EPOCH_MS = 1_704_067_200_000
"""2024-01-01T00:00:00Z in unix ms."""
LOW_BITS = 22
MAX_LOW = (1 << LOW_BITS) - 1
MAX_SNOWFLAKE = (1 << 63) - 1
MAX_STREAM_PART = (1 << 64) - 1

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NAMESPACE = re.compile("[A-Z]{3}")
_VALUE = {c: i for i, c in enumerate(ALPHABET)}
_SHAPE = re.compile(r"[A-Z]{3}[0-9A-Za-z]{11}")
_HIGHEST = "AzL8n0Y58m7"
"""MAX_SNOWFLAKE in base 62."""
_LAST = "AzL8n0Y58m7"  # 2^63 - 1


@dataclass(frozen=True, slots=True, order=True)
class BrandedId:
    """A parsed id. `text` is its 14 characters; `unix_ms` is when it was minted."""

    namespace: str
    snowflake: int

    @property
    def text(self) -> str:
        return self.namespace + encode62(self.snowflake)

    @property
    def unix_ms(self) -> int:
        return (self.snowflake >> LOW_BITS) + EPOCH_MS

    @property
    def node(self) -> int:
        return (self.snowflake >> 12) & 0x3FF

    @property
    def sequence(self) -> int:
        return self.snowflake & 0xFFF

    @property
    def stream_id(self) -> str:
        """The stream entry id that corresponds to this (``EVT``) id."""
        return f"{self.unix_ms}-{self.snowflake & MAX_LOW}"

    def __str__(self) -> str:
        return self.text


_TWO = [a + b for a in ALPHABET for b in ALPHABET]
"""Each number below 3844 as two base-62 digits."""


@functools.cache
def _pairs() -> dict[str, int]:
    """Two base-62 digits as a number: by the hundred thousand, digits one by one are felt."""
    return {a + b: 62 * _VALUE[a] + _VALUE[b] for a in ALPHABET for b in ALPHABET}


def encode62(number: int) -> str:
    """`number` (0 .. 2^63 - 1) as 11 base-62 digits, most significant first."""
    number, a = divmod(number, 3844)
    number, b = divmod(number, 3844)
    number, c = divmod(number, 3844)
    number, d = divmod(number, 3844)
    number, e = divmod(number, 3844)
    return ALPHABET[number] + _TWO[e] + _TWO[d] + _TWO[c] + _TWO[b] + _TWO[a]


def _plain(value: str | bytes) -> str | None:
    """`value` as text if it is well-formed, without its number: same length, so byte order is number order."""
    try:
        text = value.decode("ascii") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
    return text if _SHAPE.fullmatch(text) and text[3:] <= _HIGHEST else None


def parse(value: str | bytes) -> BrandedId:
    """The id in `value`. Raises BadInputError for anything that is not 14 ASCII bytes of a known shape."""
    try:
        text = value.decode("ascii") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        text = ""
    if not (text.isascii() and _SHAPE.fullmatch(text)):
        shown = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        raise BadInputError(
            f"malformed id '{one_line(shown[:40])}'",
            fix="an id is three capitals and eleven base-62 digits, such as JOB0STBBIRAKHo or RUN0STBBIRAKHo",
        )
    two = _pairs()
    number = two["0" + text[3]]
    for at in (4, 6, 8, 10, 12):
        number = number * 3844 + two[text[at : at + 2]]
    if number > MAX_SNOWFLAKE:
        raise BadInputError(f"malformed id '{text}': its number is 2^63 or more", fix="check where it was copied from")
    return BrandedId(text[:3], number)


def is_valid(value: str | bytes) -> bool:
    """Whether `value` is a well-formed branded id."""
    if isinstance(value, bytes):
        if not value.isascii():
            return False
        value = value.decode("ascii")
    # Same length and an ASCII alphabet in order: text order is number order.
    return value.isascii() and _SHAPE.fullmatch(value) is not None and value[3:] <= _LAST


def require(value: str | bytes, namespace: str) -> str:
    """`value` as text if it is a well-formed id of `namespace`; raises BadInputError (malformed) or KindError."""
    text = _plain(value)
    if text is None:
        text = parse(value).text  # raises, and says why
    if text[:3] != namespace:
        wrong = f"'{text}' is not a {namespace} id"
        if namespace == "JOB":
            wrong = "job id must be JOB-namespaced"  # the reference's words
        raise KindError(f"EMQKIND {wrong}", where=text, fix=f"give an id that begins with {namespace}")
    return text


def job_id(value: str | bytes) -> str:
    """`value` checked as a ``JOB`` id."""
    return require(value, "JOB")


def group_id(value: str | bytes) -> str:
    """`value` checked as a ``GRP`` id."""
    return require(value, "GRP")


def from_stream_id(stream_id: str | bytes, namespace: str = "EVT") -> BrandedId | None:
    """The branded id that corresponds to a stream entry id, or None where none can (before 2024, a sequence
    of 2^22 or more, a number of 2^63 or more)."""
    ms, seq = split_stream_id(stream_id)
    if ms < EPOCH_MS or seq > MAX_LOW:
        return None
    number = ((ms - EPOCH_MS) << LOW_BITS) | seq
    return BrandedId(namespace, number) if number <= MAX_SNOWFLAKE else None


def split_stream_id(stream_id: str | bytes) -> tuple[int, int]:
    """``ms-seq`` as two unsigned 64-bit numbers. Raises BadInputError."""
    text = stream_id.decode("ascii", "replace") if isinstance(stream_id, bytes) else stream_id
    match = re.fullmatch(r"([0-9]{1,20})-([0-9]{1,20})", text)
    if match:
        ms, seq = int(match[1]), int(match[2])
        if ms <= MAX_STREAM_PART and seq <= MAX_STREAM_PART:
            return ms, seq
    raise BadInputError(f"malformed stream id '{one_line(text[:50])}'", fix="a stream id is <ms>-<sequence>")


def next_stream_id(stream_id: str | bytes) -> str:
    """The lowest stream id above `stream_id`; raises BadInputError at the very last one."""
    ms, seq = split_stream_id(stream_id)
    if seq < MAX_STREAM_PART:
        return f"{ms}-{seq + 1}"
    if ms == MAX_STREAM_PART:
        raise BadInputError("no stream id follows the last one")
    return f"{ms + 1}-0"


def floor_stream_id(unix_ms: int) -> str:
    """The lowest stream id of that millisecond: everything before it is below this."""
    return f"{unix_ms}-0"


def ceil_stream_id(unix_ms: int) -> str:
    """The highest stream id that a branded id of that millisecond can have."""
    return f"{unix_ms}-{MAX_LOW}"


def min_id(namespace: str, unix_ms: int) -> str:
    """The lowest id of `namespace` minted at `unix_ms` (clamped to what an id can say)."""
    ms = min(max(unix_ms - EPOCH_MS, 0), MAX_SNOWFLAKE >> LOW_BITS)
    return namespace + encode62(ms << LOW_BITS)


def max_id(namespace: str, unix_ms: int) -> str:
    """The highest id of `namespace` minted at `unix_ms` (clamped)."""
    ms = min(max(unix_ms - EPOCH_MS, 0), MAX_SNOWFLAKE >> LOW_BITS)
    return namespace + encode62((ms << LOW_BITS) | MAX_LOW)


def at(unix_ms: int) -> datetime:
    """`unix_ms` as an aware UTC datetime."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


class Minter:
    """Mints ids: monotone within the process, thread-safe, and steady when the clock steps back.

    4,096 ids a millisecond; past that it borrows from the next millisecond instead of waiting. `node` is
    0..1023 (random unless given); `clock` returns unix ms.
    """

    def __init__(self, node: int | None = None, clock: Callable[[], int] | None = None) -> None:
        if node is not None and not 0 <= node <= 1023:
            raise BadInputError(f"node {node} is not within 0..1023")
        self._node = secrets.randbelow(1024) if node is None else node
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)
        self._lock = threading.Lock()
        self._last = -1

    @property
    def node(self) -> int:
        """The writer's part of its ids, 0..1023."""
        return self._node

    def snowflake(self) -> int:
        """The next number. Raises BadInputError when the clock stands before 2024 and nothing was minted yet."""
        with self._lock:
            ms = self._clock() - EPOCH_MS
            if ms < 0 and self._last < 0:
                raise BadInputError("the clock stands before 2024-01-01", fix="set the host's clock")
            counter = max(ms << 12, self._last + 1)
            if counter >> 12 > MAX_SNOWFLAKE >> LOW_BITS:
                raise BadInputError("the clock stands past the last mintable instant", fix="set the host's clock")
            self._last = counter
            return (counter >> 12) << LOW_BITS | self._node << 12 | (counter & 0xFFF)

    def mint(self, namespace: str) -> str:
        """A fresh id of `namespace` (three capitals)."""
        if not _NAMESPACE.fullmatch(namespace):
            raise BadInputError(f"'{one_line(namespace)}' is no namespace", fix="three ASCII capitals")
        return namespace + encode62(self.snowflake())


_process_minter = Minter()


def _after_fork() -> None:
    # A forked child would go on with its parent's node and counter, and mint the same ids.
    global _process_minter
    _process_minter = Minter()


os.register_at_fork(after_in_child=_after_fork)


def mint(namespace: str = "JOB") -> str:
    """A fresh id of `namespace` from this process's own minter."""
    return _process_minter.mint(namespace)


def node() -> int:
    """The writer's part of this process's ids, 0..1023."""
    return _process_minter.node
