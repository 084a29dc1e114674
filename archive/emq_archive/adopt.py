"""`adopt`: begin where another archiver left off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emq_archive.codec import id_key
from emq_archive.deadline import NEVER, Deadline
from emq_archive.errors import LostRaceError
from emq_archive.model import StreamId, parse_id, show_id
from emq_archive.ship import RACES, LogShipper
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError


@dataclass(slots=True)
class Adopted:
    """Records up to `after` count as archived by somebody else."""

    queue: str
    stream: str
    after: str
    lsn: int = 0
    dry_run: bool = False

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def after_watermark(watermark: bytes | None) -> StreamId:
    """The stream id of a cached watermark (an ``EVT`` id). Raises BadInputError."""
    if watermark is None:
        raise BadInputError("no archiver left a watermark on this stream", fix="give --after <ms>-<seq>")
    return parse_id(ids.parse(ids.require(watermark, "EVT")).stream_id)


def adopt(
    shipper: LogShipper, after: StreamId, *, now_ms: int, dry_run: bool = False, deadline: Deadline = NEVER
) -> Adopted:
    """Notes, here and in the log, that records up to `after` were archived elsewhere: they are not archived again, and
    a trim may take them. It holds for the present life of the stream and for this local database; another host
    archives them once more, which does no harm."""
    done = Adopted(shipper.ref.queue, shipper.ref.stream, show_id(after), dry_run=dry_run)
    if not dry_run:
        shipper.remote.probe(deadline=deadline)
        for _ in range(RACES):
            shipper.log.sync(deadline=deadline)
            try:
                shipper.log.commit("adopt", at=now_ms, after=show_id(after), deadline=deadline)
                break
            except LostRaceError:
                continue
        frontier = shipper.local.frontier(shipper.ref)
        shipper.catalog.set(adopted=id_key(*after), adopted_life=frontier.life if frontier else 0)
    done.lsn = shipper.catalog.known().lsn
    return done
