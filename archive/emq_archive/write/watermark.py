"""The cached watermark of a stream, ``stream:<name>:archived``: where readers go over from archive to stream.

Whose it is, is known by a mark beside it, of what our archive last cached there.
"""

from __future__ import annotations

from collections.abc import Callable

from emq_archive.errors import ForeignWatermarkError
from emq_archive.write.trim import fence_args
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, DamagedError, ServerError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue


class Watermark:
    """The watermark of one stream, as one archive sets it. `archived`: whether an ``EVT`` id is of a record that this
    archive's log holds; asked only where no mark of ours says whose the watermark is."""

    def __init__(self, queue: Queue, stream: str, archived: Callable[[str], bool]) -> None:
        self.queue, self.stream, self._archived = queue, stream, archived
        self._ours = ""
        self._looked = False

    def check(self) -> None:
        """Looks once whose watermark stands. Raises ForeignWatermarkError; what can't be read is left to `cache`."""
        if self._looked:
            return
        try:
            found, mark = self.read()
        except (ServerError, DamagedError):
            return
        if found is not None and found != mark:
            if not self._archived(found):
                raise ForeignWatermarkError(self.queue.name, self.stream, found)
            self._ours = found
        self._looked = True

    def anothers(self) -> str | None:
        """The watermark that another archiver left; None: none. Raises BadInputError where it is our own."""
        found, mark = self.read()
        if found is not None and (found == mark or self._archived(found)):
            raise BadInputError(
                f"the watermark {found} of stream {self.stream} is this archive's own: there is nothing to adopt",
                where=self.queue.name,
                fix=f"`emq-ops archive status {self.queue.name} {self.stream}` says how far it is",
            )
        return found

    def read(self) -> tuple[str | None, str | None]:
        """The ``EVT`` id that stands (None: none, or something else), and the one that our archive last cached."""
        keys = self.queue.keys
        found, mark = self.queue.server.read_many(
            [("GET", keys.watermark(self.stream)), ("HGET", keys.marks, self.stream)]
        )
        return _evt(found), _evt(mark)

    def cache(self, fence: Fence | None, evt: str) -> bool:
        """Caches the ``EVT`` id of the newest archived record for other readers; False where a higher one stands.
        Raises ForeignWatermarkError (nothing changed), FenceError, DamagedError, and ServerError (code ``OOM`` at the
        memory limit)."""
        keys = self.queue.keys
        named = [keys.watermark(self.stream), keys.lease, keys.marks]
        reply = self.queue.run("stream_watermark", named, *fence_args(fence), evt, self.stream, self._ours)
        if reply < 0:
            self._looked = False
            raise ForeignWatermarkError(self.queue.name, self.stream, self.read()[0] or "")
        return bool(reply)

    def adopt(self, found: str) -> None:
        """The watermark `found` counts as ours from here on; one that another archiver sets after that does not."""
        self.queue.server.write("HSET", self.queue.keys.marks, self.stream, found)


def _evt(raw: bytes | None) -> str | None:
    text = raw.decode("ascii", "replace") if raw else ""
    return text if text.startswith("EVT") and ids.is_valid(text) else None
