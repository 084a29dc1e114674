"""How far the archive of a stream is; reads only."""

from __future__ import annotations

from typing import Any

from emq_archive.local.store import SqlStore
from emq_archive.model import Frontier, StreamRef, next_id, show_id
from emq_archive.source import StreamSource
from emq_archive.write.facts import StreamFacts
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server


def status_of(server: Server, local: SqlStore, ref: StreamRef) -> dict[str, Any]:
    """Both frontiers (`folded_to`: the highest id in the archive; `trimmed_to`: what stands first in Valkey now), how
    far the archive is behind (`lag_records`, `lag_seconds`: the age of the oldest record that was not read yet),
    what is not shipped yet, the last commit (unix ms), rows, segments and bytes, and what consumer groups still need.
    """
    stats, outbox, frontier = local.stats(ref), local.outbox(ref), local.frontier(ref)
    row: dict[str, Any] = {
        "queue": ref.queue,
        "stream": ref.stream,
        "kind": ref.kind,
        "folded_to": show_id(frontier.last) if frontier and frontier.last else None,
        "trimmed_to": None,
        "top": None,
        "in_stream": None,
        "lag_records": 0,
        "lag_seconds": 0.0,
        "unshipped": outbox.records,
        "unshipped_bytes": outbox.bytes,
        "unshipped_since_ms": outbox.oldest_ms,
        "last_lsn": stats.last_lsn,
        "last_commit_ms": stats.last_commit_ms,
        "watermark": None,
        "local_rows": stats.rows,
        "local_bytes": stats.bytes,
        "segments": stats.segments,
        "remote_records": stats.remote_records,
        "remote_bytes": stats.remote_bytes,
        "groups": [],
    }
    if ref.kind == "dead":
        return row
    queue = Queue(server, ref.queue)
    source = StreamSource(queue, ref.stream)
    facts, ended = source.observe(frontier)
    watermark = server.read("GET", queue.keys.watermark(ref.stream))
    row["watermark"] = watermark.decode("utf-8", "replace") if watermark else None
    row["trimmed_to"] = show_id(facts.first) if facts.first else None
    row["top"] = show_id(facts.last_generated) if facts.exists else None
    row["in_stream"] = facts.length
    row["groups"] = [
        {
            "name": group.name,
            "pending": group.pending,
            "undelivered": group.undelivered,
            "needs": show_id(group.needs) if group.needs else None,
        }
        for group in facts.groups
    ]
    last = None if ended or frontier is None else frontier.last
    row["lag_records"] = _unread(source, facts, None if last is None else frontier)
    if row["lag_records"]:
        start = facts.first if last is None else next_id(last)
        oldest = None if start is None else next(iter(source.pages(start, facts.last_generated)), None)
        if oldest:
            row["lag_seconds"] = max(0, facts.now_ms - int(oldest[0][0].split(b"-")[0])) / 1000
    return row


def unread(server: Server, local: SqlStore, ref: StreamRef) -> int | None:
    """How many records of a stream the archive did not read yet; None where it never read any. Reads only."""
    frontier = local.frontier(ref)
    if frontier is None:
        return None
    source = StreamSource(Queue(server, ref.queue), ref.stream)
    facts, ended = source.observe(frontier)
    return _unread(source, facts, None if ended else frontier)


def _unread(source: StreamSource, facts: StreamFacts, frontier: Frontier | None) -> int:
    """`frontier`: of this life of the stream; None: nothing of it was read."""
    if frontier is None or frontier.last is None:
        return facts.length
    return source.count_unread(frontier) if frontier.last < facts.last_generated else 0
