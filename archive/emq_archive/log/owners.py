"""Whose the archives of a remote are, without a local database: a few requests a stream, however long its log is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emq_archive.errors import DamagedArchiveError
from emq_archive.log.commit import checkpoint_lsn, encoded, get_commit, log_folder, lsn_of
from emq_archive.log.signing import Signatures
from emq_archive.model import StreamRef
from emq_archive.ports import Remote

_ROOT = "log/"
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class LogOwner:
    """The state that an archive belongs to, and the fencing token at the head of its log."""

    ref: StreamRef
    state: str
    token: int


def owners(remote: Remote, queue: str | None = None) -> Iterator[LogOwner]:
    """Of every archive that the remote holds (of one queue). Raises what the store raises, and DamagedArchiveError."""
    root = _ROOT if queue is None else f"{_ROOT}{encoded(queue)}/"
    after = root
    while keys := remote.list(root, after=after, limit=1):
        folder = "/".join(keys[0].split("/")[:3]) + "/"
        head = _head(remote, folder)
        if head is not None:
            body, commit = get_commit(remote, head)
            Signatures(remote.sign).check(body, head)
            if log_folder(commit.ref) != folder:
                raise DamagedArchiveError(f"commit {head} says that it is of {commit.ref}", faults=(head,))
            yield LogOwner(commit.ref, commit.state, commit.token)
        after = folder[:-1] + "0"  # behind whatever lies in it


def _head(remote: Remote, folder: str) -> str | None:
    """The key of the newest commit, None where there is none."""
    found = remote.list(folder + "checkpoint/", limit=_PAGE)
    at = next((lsn for key in found if (lsn := checkpoint_lsn(key)) is not None), None)
    head = f"{folder}{at:020d}.json" if at is not None else None
    while True:
        keys = remote.list(folder + "0", after=head or "", limit=_PAGE)
        head = next((key for key in reversed(keys) if lsn_of(key) and key.count("/") == folder.count("/")), head)
        if len(keys) < _PAGE:
            return head
