"""How the object store stands beside what the local database believes; reads only."""

from __future__ import annotations

import tempfile

from emq_archive.local.catalog import Catalog
from emq_archive.local.store import SqlStore, open_local
from emq_archive.log.commit import commit_key
from emq_archive.log.log import CommitLog
from emq_archive.log.owners import owners
from emq_archive.model import StreamRef, Writer
from emq_archive.ports import Remote


def head_of(local: SqlStore, remote: Remote, ref: StreamRef) -> str | None:
    """Whether the newest commit that this host knows stands in the store: ``there`` or ``missing``; None where it knows
    of none. One request. Raises what the store raises."""
    known = Catalog(local, ref).known()
    if not known.lsn:
        return None
    return "there" if remote.size(commit_key(ref, known.lsn)) is not None else "missing"


def unknown_here(local: SqlStore, remote: Remote, queue: str) -> dict[StreamRef, int]:
    """The archives of a queue that the store holds and the local database has never heard of, with their records.
    Raises what the store raises, and DamagedArchiveError."""
    refs = [one.ref for one in owners(remote, queue) if _never_heard_of(local, one.ref)]
    return {ref: _records(remote, ref) for ref in refs}


def _never_heard_of(local: SqlStore, ref: StreamRef) -> bool:
    """Whoever ships has stored the records before: a first commit that is not noted yet is no loss."""
    return not Catalog(local, ref).known().lsn and not local.stats(ref).rows and local.frontier(ref) is None


def _records(remote: Remote, ref: StreamRef) -> int:
    with tempfile.TemporaryDirectory(prefix="emq-ops-") as folder, open_local(f"sqlite:///{folder}/look") as scratch:
        catalog = Catalog(scratch, ref)
        CommitLog(catalog, remote, Writer("")).read()
        return sum(segment.records for segment in catalog.segments())
