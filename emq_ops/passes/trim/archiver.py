"""What the trim asks of an archive of dead jobs; `emq_archive.write.dead.DeadArchive` is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from emq_archive.model import Pair


class ArchivedJob(Protocol):
    """A job that is in the archive for certain. `names`: its row's fields in the order of `digest`
    (``lua/lib/dead.lua``), which covers their values and the log lines."""

    @property
    def job(self) -> str: ...
    @property
    def names(self) -> tuple[bytes, ...]: ...
    @property
    def digest(self) -> str: ...


class ArchiveReceipt(Protocol):
    """`proven`: the jobs that may go, by id. `failed`: those that may not, and why. `waiting`: those that may later.
    `gone`: dead no more. `folded`: how many records are new."""

    @property
    def proven(self) -> Mapping[str, ArchivedJob]: ...
    @property
    def failed(self) -> Mapping[str, str]: ...
    @property
    def waiting(self) -> Sequence[str]: ...
    @property
    def gone(self) -> Sequence[str]: ...
    @property
    def folded(self) -> int: ...


class DeadArchiver(Protocol):
    """Archives dead jobs and proves it before it answers."""

    def archive(self, jobs: Sequence[str], facts: Mapping[str, Sequence[Pair]], *, now_ms: int) -> ArchiveReceipt:
        """`facts`: what is known of each death (``seen_at`` unix ms, ``cause`` ...), by job. Raises what its stores
        raise; then nothing is proven."""
