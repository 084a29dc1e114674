"""Faults of the archive: what an operator must do differs, so each has a class."""

from __future__ import annotations

from emq_ops.protocol.errors import DeadlineError, EmqError, FenceError, UnreachableError

__all__ = [
    "ArchiveError",
    "DamagedArchiveError",
    "DeadlineError",
    "DeposedError",
    "DiskFullError",
    "ForeignStateError",
    "ForeignWatermarkError",
    "LostRaceError",
    "StoreRefusedError",
    "StoreUnreachableError",
]


class ArchiveError(EmqError):
    """The base of this layer."""


class StoreRefusedError(ArchiveError):
    """The object store answers, and says no: rights, a missing bucket, a wrong region, a clock that is off.

    `code`: the store's own code (``AccessDenied``, ``NoSuchBucket`` ...).
    """

    def __init__(self, what: str, *, code: str = "", where: str | None = None, fix: str | None = None) -> None:
        super().__init__(what, where=where, fix=fix)
        self.code = code


class StoreUnreachableError(UnreachableError):
    """The object store does not answer within the attempts and the time that it was given."""


class DiskFullError(ArchiveError):
    """No room on the disk of a directory remote, or in the bucket. Nothing of the batch was kept."""


class DamagedArchiveError(ArchiveError):
    """The remote archive is not what its log says: `faults` names each missing or altered object."""

    def __init__(
        self, what: str, *, faults: tuple[str, ...] = (), where: str | None = None, fix: str | None = None
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.faults = faults


class ForeignStateError(ArchiveError):
    """The log was begun by another state. Two states must not archive into one log."""


class ForeignWatermarkError(ArchiveError):
    """Another archiver's watermark stands on the stream: where its readers go over from its archive to the stream."""

    def __init__(self, queue: str, stream: str, found: str) -> None:
        super().__init__(
            f"another archiver's watermark {found} stands on stream {stream}; going on would lose its readers records",
            where=queue,
            fix=f"stop it, then `emq-ops archive adopt {queue} {stream}`",
        )


class LostRaceError(ArchiveError):
    """Another writer committed the number that we were about to: re-read the log and go on from its head."""


class DeposedError(ArchiveError, FenceError):
    """The log's head carries a higher fencing token than ours: somebody else leads this queue now, or our database or
    the server went back in time. `above`: that token."""
