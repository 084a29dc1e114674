"""Records for tests, and the parts of an archive around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from emq_archive.chunk import Batch
from emq_archive.local import SqlStore
from emq_archive.local.tables import identity, metadata
from emq_archive.model import Frontier, Policy, RawEntry, Record, StreamRef, Writer, parse_id
from emq_archive.ports import Remote
from emq_archive.reports import Added
from emq_archive.write.ship import LogShipper
from emq_ops.protocol.ids import LOW_BITS, BrandedId
from tests.support.oracle import Bucket, Seen

REF = StreamRef("mail", "completions")
STATE = "6b3f1c1e-0000-4000-8000-000000000001"
DAY_MS = 86_400_000
TOP: tuple[int, int] = ((1 << 64) - 1, (1 << 64) - 1)
START_MS = 1_733_000_000_000
SNOWFLAKE_START = START_MS - 1_704_067_200_000


def entry(stream_id: str, *flat: bytes | str) -> RawEntry:
    """As the server sends it."""
    return [stream_id.encode(), [x.encode() if isinstance(x, str) else x for x in flat or ("f", stream_id)]]


def settled(count: int, *, first: int = 0, step_ms: int = 1, **more: str) -> list[RawEntry]:
    """`count` records of settled jobs, `step_ms` apart, as workers write them."""
    out = []
    for i in range(first, first + count):
        number = (SNOWFLAKE_START + i * step_ms) << LOW_BITS | 7
        event, job = BrandedId("EVT", number), BrandedId("JOB", number - (5 << LOW_BITS))
        flat = ["id", event.text, "job", job.text, "outcome", "completed", "attempts", "1", "result", f"ok {i}"]
        for name, value in more.items():
            flat += [name, value]
        out.append(entry(event.stream_id, *flat))
    return out


def job_of(raw: RawEntry) -> str:
    """The job of a settled record."""
    flat: list[bytes] = raw[1]
    return flat[flat.index(b"job") + 1].decode()


def add(
    store: SqlStore,
    entries: Sequence[RawEntry],
    ref: StreamRef = REF,
    policy: Policy | None = None,
    *,
    now_ms: int = START_MS,
    life: int = 0,
) -> Added:
    """Stores a page, with the frontier that a driver would store."""
    batch = Batch()
    batch.append(entries)
    last = parse_id(entries[-1][0]) if entries else None
    frontier = Frontier(last=last, updated_ms=now_ms, life=life) if ref.kind == "stream" else None
    return store.add(ref, batch, frontier, policy or Policy())


def shipper(
    store: SqlStore, remote: Remote, ref: StreamRef = REF, *, token: int = 0, state: str = STATE, **policy: Any
) -> LogShipper:
    """The shipper of one host."""
    return LogShipper(store, remote, ref, Policy(**policy), Writer(state, token, "test"))


def plain(records: Iterable[Record]) -> list[RawEntry]:
    """Records in the form that the server sends."""
    return [[r.stream_id.encode(), [x for pair in r.fields for x in pair]] for r in records]


class Killed(BaseException):
    """As if the process had been killed here."""


class Cutting:
    """A remote at one of whose calls the caller dies: before it is done, or after. ``again``: the call is done twice,
    as after a lost reply."""

    def __init__(self, remote: Remote, verb: str, prefix: str, when: str) -> None:
        self.remote, self.verb, self.prefix, self.when = remote, verb, prefix, when

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.remote, name)
        if name != self.verb:
            return real

        def call(key: str, *args: Any, **more: Any) -> Any:
            if not key.startswith(self.prefix):
                return real(key, *args, **more)
            if self.when == "before":
                raise Killed
            real(key, *args, **more)
            if self.when == "again":
                return real(key, *args, **more)
            raise Killed

        return call


class _Noting:
    """A remote that notes what is written to it."""

    def __init__(self, remote: Remote) -> None:
        self.remote, self.written = remote, list[tuple[str, str, bytes]]()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.remote, name)
        if name == "delete":
            raise AssertionError("an archive that only grows deletes nothing")
        if name not in ("create", "put"):
            return real

        def call(key: str, body: bytes | Path) -> Any:
            self.written.append((name, key, body.read_bytes() if isinstance(body, Path) else body))
            return real(key, body)

        return call


_made: dict[tuple[int, int, int], tuple[list[tuple[str, str, bytes]], dict[str, list[dict[str, Any]]]]] = {}


def archived(local: SqlStore, remote: Remote, *, pages: int = 4, each: int = 25, step_ms: int = 1) -> list[RawEntry]:
    """A small archive of several segments: made once a process, and written down again where another is wanted as the
    first of its database and its store."""
    entries = settled(pages * each, step_ms=step_ms)
    shape = pages, each, step_ms
    if remote.sign is not None or local.streams() or remote.list("", limit=1):
        _archive(local, remote, entries, each)
    elif shape in _made:
        written, rows = _made[shape]
        for verb, key, body in written:
            getattr(remote, verb)(key, body)
        with local.write() as connection:
            for name, found in rows.items():
                connection.execute(metadata.tables[name].insert(), found)
    else:
        noting = _Noting(remote)
        _archive(local, noting, entries, each)
        _made[shape] = noting.written, _rows(local)
    return entries


def _archive(local: SqlStore, remote: Any, entries: list[RawEntry], each: int) -> None:
    ship = shipper(local, remote)
    for at in range(0, len(entries), each):
        add(local, entries[at : at + each])
        ship.ship(now_ms=START_MS, force=True)


def _rows(local: SqlStore) -> dict[str, list[dict[str, Any]]]:
    """All that a database holds, but for who it is and for numbers that it gives by itself."""
    found = {}
    with local.read() as connection:
        for table in metadata.sorted_tables:
            columns = [column for column in table.columns if column.name != "id"]
            rows = connection.execute(sa.select(*columns).order_by(*table.primary_key)).mappings()
            if table is not identity and (kept := [dict(row) for row in rows]):
                found[table.name] = kept
    return found


def seen(remote: Remote, ref: StreamRef = REF) -> list[Seen]:
    """What the bucket holds, by another reader than ours."""

    def get(key: str) -> bytes:
        body = remote.get(key)
        assert body is not None, key
        return body

    def names(prefix: str) -> list[str]:
        found: list[str] = []
        while page := remote.list(prefix, after=found[-1] if found else ""):
            found += page
        return found

    return Bucket(get, names).records(ref.queue, ref.stream)


def as_seen(entries: list[Any]) -> list[Seen]:
    return sorted(Seen.of(e[0], e[1]) for e in entries)


class Beside:
    """A remote beside which others work: `act` runs once, before the first call of `verb` on a key that begins so."""

    def __init__(self, remote: Remote, verb: str, prefix: str, act: Callable[[], object]) -> None:
        self.remote, self.verb, self.prefix = remote, verb, prefix
        self.act: Callable[[], object] | None = act

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.remote, name)

        def call(key: str, *args: Any, **more: Any) -> Any:
            if name == self.verb and key.startswith(self.prefix) and self.act is not None:
                act, self.act = self.act, None
                act()
            return real(key, *args, **more)

        return call if name == self.verb else real
