"""`adopt`: begin where another archiver left off."""

from __future__ import annotations

from dataclasses import dataclass

from emq_archive import redact
from emq_archive.log.commit import Change, LetGo
from emq_archive.model import FIRST_ID, Record, StreamId, parse_id, show_id
from emq_archive.reports import Row
from emq_archive.source import StreamSource
from emq_archive.write.ship import LogShipper
from emq_ops.protocol import deadline, ids
from emq_ops.protocol.errors import BadInputError


@dataclass(slots=True)
class Adopted(Row):
    """The `records` that stand in the stream up to `after` count as archived by somebody else."""

    queue: str
    stream: str
    after: str
    records: int = 0
    lsn: int = 0
    dry_run: bool = False


def after_watermark(watermark: str | None) -> StreamId:
    """The stream id of a cached watermark (an ``EVT`` id). Raises BadInputError for None."""
    if watermark is None:
        raise BadInputError("no archiver left a watermark on this stream", fix="give --after <ms>-<seq>")
    return parse_id(ids.parse(watermark).stream_id)


def adopt(shipper: LogShipper, live: StreamSource, after: StreamId, *, now_ms: int, dry_run: bool = False) -> Adopted:
    """Notes in the log which records stand in the stream up to `after`: they were archived elsewhere, so no host
    archives them again, and a trim may take them. They are known by id and bytes: where the stream is made anew, other
    records under their ids are archived. Raises what the server and the stores raise."""
    done = Adopted(shipper.ref.queue, shipper.ref.stream, show_id(after), dry_run=dry_run)
    if not dry_run:
        shipper.remote.probe()
        shipper.log.sync()
    ever = [*shipper.catalog.redactions(), *([shipper.policy.redact] if shipper.policy.redact else [])]
    known: set[bytes] = set()
    ends: list[StreamId] = []
    for page in live.pages(FIRST_ID, after):
        deadline.check("reading the records to be adopted")
        for record in map(Record.from_entry, page):
            known |= redact.identities(record.id, record.fields, ever, stored=False)
        ends = [*ends[:1], parse_id(page[0][0]), parse_id(page[-1][0])]
        done.records += len(page)
    let_go = LetGo(ends[0], ends[-1], b"".join(sorted(known))) if known else None
    if not dry_run:
        shipper.log.append(Change(kind="adopt", at=now_ms, after=show_id(after), let_go=let_go))
    done.lsn = shipper.catalog.known().lsn
    return done
