"""Which dead jobs a trim would remove, told beforehand: the order of the trim pass, read and nothing written."""

from __future__ import annotations

from emq_ops.deploy.model import DeadFacts
from emq_ops.ledger import deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.ids import is_valid, min_id
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server

PAGE = 1000


def forecast(
    server: Server,
    ledger: Ledger | None,
    queue: str,
    keep: int | None,
    max_age_ms: int | None,
    *,
    by_mint: bool = False,
    now_ms: int | None = None,
) -> DeadFacts:
    """The dead set of `queue` against a policy. The oldest go first: by when they were first seen dead (those that the
    ledger does not know yet: now), then by id. `now_ms`: to ask again as of an earlier moment, server clock.

    Jobs that a trim skips (held by a worker, children of a flow) are no victims, and noted.
    """
    keys = keys_of(queue)
    now = server.now_ms(queue) if now_ms is None else now_ms
    members = [m.decode("ascii") for m in server.read("ZRANGE", keys.dead, 0, -1) if is_valid(m)]
    seen = {} if by_mint else first_seen(server, ledger, queue, members, now)
    order = sorted(members) if by_mint else sorted(members, key=lambda job: (seen[job], job))
    count = 0 if keep is None else max(0, len(order) - keep)
    if max_age_ms is not None:
        if by_mint:
            bound = min_id("JOB", max(0, now - max_age_ms))
            old = sum(1 for job in order if job < bound)
        else:
            old = sum(1 for job in order if seen[job] < now - max_age_ms)
        count = max(count, old)
    chosen, notes = _removable(server, queue, order[:count])
    return DeadFacts(len(members), tuple(sorted(chosen)), now, tuple(notes))


def first_seen(server: Server, ledger: Ledger | None, queue: str, members: list[str], now: int) -> dict[str, int]:
    """When each was first seen dead. A job that died again since the ledger last looked is seen now."""
    seen = dict.fromkeys(members, now)
    if ledger is None:
        return seen
    keys, after = keys_of(queue), ""
    while True:
        with ledger.read() as connection:
            page = deaths.open_jobs(connection, queue, after=after, limit=PAGE)
            known = deaths.known(connection, queue, [job for job, _ in page])
        if not page:
            return seen
        after = page[-1][0]
        here = [(job, at) for job, at in page if job in seen]
        rows = server.read_many([("HMGET", keys.row(job), "attempts", "stalled") for job, _ in here])
        for (job, at), (attempts, stalls) in zip(here, rows, strict=True):
            if known[job] == (_number(attempts, -1), _number(stalls, 0)):
                seen[job] = at


def _number(value: bytes | None, default: int) -> int:
    return int(value) if value is not None and value.isdigit() and len(value) <= 18 else default


def _removable(server: Server, queue: str, jobs: list[str]) -> tuple[list[str], list[str]]:
    keys = keys_of(queue)
    out: list[str] = []
    held = children = 0
    for first in range(0, len(jobs), PAGE):
        page = jobs[first : first + PAGE]
        commands = [
            c for job in page for c in (("EXISTS", keys.book(job, "lock")), ("HEXISTS", keys.row(job), "parent"))
        ]
        replies = server.read_many(commands)
        for job, lock, parent in zip(page, replies[::2], replies[1::2], strict=True):
            held += bool(lock)
            children += bool(parent and not lock)
            if not lock and not parent:
                out.append(job)
    notes = []
    if held:
        notes.append(f"{held} held by a worker stay")
    if children:
        notes.append(f"{children} children of flows stay")
    return out, notes
