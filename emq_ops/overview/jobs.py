"""Jobs wherever they stand: where one is, the jobs of a queue by place, and a bounded, resumable search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.protocol.errors import BadInputError, DamagedError, EmqError
from emq_ops.protocol.ids import is_valid, job_id, parse
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import lanes

PLACES = ("waiting", "scheduled", "active", "dead")
PAGE = 200
"""Jobs a flush, payloads included."""
_FIELDS = ("attempts", "stalled", "group", "last_error", "parent", "payload")


@dataclass(frozen=True, slots=True)
class JobLook:
    """A job in `place` of a queue. `at_ms`: its lease's deadline, or when it is due (unix ms); `payload`, `error`: as
    they are, None where there is none, or the row can't be read (`damaged`)."""

    queue: str
    job: str
    place: str
    at_ms: int | None = None
    attempts: int | None = None
    stalls: int = 0
    lane: str | None = None
    child: bool = False
    error: bytes | None = None
    payload: bytes | None = None
    damaged: bool = False

    @property
    def minted_ms(self) -> int:
        """When its id was made, unix ms."""
        return parse(self.job).unix_ms


def whereabouts(server: Server, job: str, queues: Sequence[str]) -> dict[str, str]:
    """The queues that have the job, each with its state; in one flush. A queue that can't be read says ``damaged``."""
    script, wanted = load("job_state"), job_id(job)
    keys = [Queue(server, queue).keys for queue in queues]
    replies = server.run_many(script, [([k.row(wanted)], [k.base, wanted]) for k in keys], readonly=True)
    found: dict[str, str] = {}
    for queue, reply in zip(queues, replies, strict=True):
        if isinstance(reply, DamagedError):
            found[queue] = "damaged"
        elif isinstance(reply, EmqError):
            raise reply
        elif reply != b"absent":
            found[queue] = reply.decode("ascii")
    return found


def jobs_of(
    server: Server, queue: str, places: Iterable[str], after: str = "", *, by_id: bool = False
) -> Iterator[JobLook]:
    """The jobs of a queue, place by place (of PLACES), in pages; by id, those in flight and scheduled by their instant.
    `by_id`: those too, at the price of all their ids at once. `after`: the ids above this one. Raises BadInputError for
    another place."""
    for place in places:
        if place not in PLACES:
            raise BadInputError(f"no state '{place}'", fix=f"one of {', '.join(PLACES)}")
        page: list[tuple[str, int | None]] = []
        for member in _members(Queue(server, queue), place, after, by_id=by_id):
            page.append(member)
            if len(page) == PAGE:
                yield from _read(server, queue, place, page)
                page = []
        if page:
            yield from _read(server, queue, place, page)


def _members(q: Queue, place: str, after: str, *, by_id: bool) -> Iterator[tuple[str, int | None]]:
    if place in ("active", "scheduled"):
        found = (
            one for one in _by_instant(q.keys.active if place == "active" else q.keys.schedule, q) if one[0] > after
        )
        yield from sorted(found) if by_id else found
        return
    keys = [q.keys.dead] if place == "dead" else [q.keys.pending, *(q.keys.lane(one.group) for one in lanes(q))]
    for key in keys:
        low: str | bytes = f"({after}" if after else "-"
        while True:
            page = q.server.read("ZRANGEBYLEX", key, low, "+", "LIMIT", 0, PAGE)
            yield from ((job, None) for raw in page if (job := _job_of(raw)) is not None)
            if len(page) < PAGE:
                break
            low = b"(" + page[-1]


def _by_instant(key: str, q: Queue) -> Iterator[tuple[str, int]]:
    rank = 0
    while flat := q.server.read("ZRANGE", key, rank, rank + PAGE - 1, "WITHSCORES"):
        for raw, score in zip(flat[::2], flat[1::2], strict=True):
            if (job := _job_of(raw)) is not None:
                yield job, score_ms(score)
        rank += PAGE


def _job_of(raw: bytes) -> str | None:
    return raw.decode("ascii") if raw[:3] == b"JOB" and is_valid(raw) else None


def _read(server: Server, queue: str, place: str, page: Sequence[tuple[str, int | None]]) -> Iterator[JobLook]:
    keys = Queue(server, queue).keys
    replies = server.read_each([("HMGET", keys.row(job), *_FIELDS) for job, _ in page])
    for (job, at), reply in zip(page, replies, strict=True):
        if isinstance(reply, EmqError):
            yield JobLook(queue, job, place, at, damaged=True)
            continue
        attempts, stalled, group, error, parent, payload = reply
        yield JobLook(
            queue=queue,
            job=job,
            place=place,
            at_ms=at,
            attempts=_count(attempts),
            stalls=_count(stalled) or 0,
            lane=group.decode("utf-8", "backslashreplace") if group else None,
            child=parent is not None,
            error=error,
            payload=payload,
            damaged=attempts is None,
        )


def _count(raw: Any) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= 15 else None


@dataclass(slots=True)
class TextSearch:
    """Jobs whose payload or error contains `text`, queue by queue, place by place. At most `most` jobs are looked at;
    then `cursor` says where a search like this one goes on (``queue/place/id``; empty: it came to the end)."""

    server: Server
    queues: Sequence[str]
    text: bytes
    most: int = 100_000
    cursor: str = ""
    looked: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[JobLook]:
        start_queue, start_place, after = self._start()
        for queue in self.queues:
            if queue < start_queue:
                continue
            for place in PLACES:
                if queue == start_queue and PLACES.index(place) < PLACES.index(start_place):
                    continue
                here = after if (queue, place) == (start_queue, start_place) else ""
                for one in jobs_of(self.server, queue, [place], here, by_id=True):
                    if self.looked >= self.most:
                        return
                    self.looked += 1
                    self.cursor = f"{queue}/{place}/{one.job}"
                    if self.text in (one.payload or b"") or self.text in (one.error or b""):
                        yield one
        self.cursor = ""

    def _start(self) -> tuple[str, str, str]:
        if not self.cursor:
            return "", PLACES[0], ""
        queue, _, rest = self.cursor.rpartition("/")[0].rpartition("/")
        job = self.cursor.rpartition("/")[2]
        if rest not in PLACES or not is_valid(job):
            raise BadInputError(f"'{self.cursor}' is no place to go on from", where="--from", fix="as the search said")
        return queue, rest, job
