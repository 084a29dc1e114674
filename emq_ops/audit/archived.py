"""What the archive has of a job: its dead records, whole, and its records in the event streams."""

from __future__ import annotations

from collections.abc import Iterator

from emq_archive.live import LiveStream
from emq_archive.local.store import SqlStore
from emq_archive.model import Record, StreamRef
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_ops.audit.life import TEXT, LifeEvent
from emq_ops.ledger.snapshot import JobSnapshot
from emq_ops.passes.acts.errortext import text_of
from emq_ops.passes.acts.flow_records import snapshot_of_facts
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server

_ROW, _LOG, _FACT = b"row:", b"log", b"fact:"


class Archived:
    """One archive, as audits, undo and rehydrate ask it. `remote` None: the local database alone. `server`: where the
    streams' live tails are read; None leaves them out."""

    def __init__(self, local: SqlStore, remote: Remote | None, server: Server | None = None) -> None:
        self.local, self.remote, self.server = local, remote, server

    def snapshot(self, queue: str, job: str) -> JobSnapshot | None:
        """The job as it was archived last, None where the archive has none with its payload."""
        newest: Record | None = None
        for record in Archive(self.local, self.remote, StreamRef.dead(queue)).read(job=job):
            if record.first(_ROW + b"payload") is not None:
                newest = record
        if newest is None:
            return None
        row = [x for n, v in newest.fields if n.startswith(_ROW) for x in (n[len(_ROW) :], v)]
        logs = [value for name, value in newest.fields if name == _LOG]
        facts = [(name[len(_FACT) :], value) for name, value in newest.fields if name.startswith(_FACT)]
        return snapshot_of_facts(row, logs, facts)

    def events(self, job: str) -> Iterator[LifeEvent]:
        """Every record of the job, of every stream that the archive knows, and of its live tail."""
        for ref in self.local.streams():
            live = None
            if self.server is not None and ref.kind == "stream":
                live = LiveStream(Queue(self.server, ref.queue), ref.stream)
            for record in Archive(self.local, self.remote, ref, live=live).read(job=job):
                yield _event(ref, record)


def _event(ref: StreamRef, record: Record) -> LifeEvent:
    facts = {"queue": ref.queue, "stream": ref.stream, "id": record.stream_id, "incarnation": record.incarnation}
    if ref.kind == "dead":
        seen = record.first(b"fact:seen_at")
        at_ms = int(seen) if seen is not None and seen.isdigit() else None
        error = record.first(b"row:last_error")
        text = f"its row was archived dead from {ref.queue}"
        return LifeEvent(at_ms, "archive", "archived", text + (f": {text_of(error, TEXT)}" if error else ""), facts)
    outcome = record.first(b"outcome")
    told = record.first(b"error") or record.first(b"result")
    word = text_of(outcome, 40) if outcome else "recorded"
    text = f"{word} in {ref.queue}, stream {ref.stream}" + (f": {text_of(told, TEXT)}" if told else "")
    return LifeEvent(record.id[0], "archive", word, text, facts)
