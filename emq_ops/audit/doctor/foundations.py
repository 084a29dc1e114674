"""What the product rests on beside the keyspace: the archive's local database, its object store, disk space."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from emq_archive.local.catalog import Catalog
from emq_archive.local.store import SqlStore
from emq_archive.log.commit import commit_key
from emq_archive.model import StreamRef
from emq_archive.ports import Remote
from emq_ops.audit.doctor.finding import Finding
from emq_ops.protocol import files
from emq_ops.protocol.errors import EmqError

SAMPLE = 20
"""So many segments of a stream are looked for, the newest first."""
LOW_BYTES = 100 * 1024 * 1024
"""Less free space than this is told."""


def examine_archive(
    local: SqlStore, remote: Remote | None, queues: Iterable[str], states: Collection[str]
) -> list[Finding]:
    """What is wrong with the archives of these queues: marked damaged, another state's, the head of a log or a segment
    that the store has not. `states`: those that are ours (none: nobody knows). Reads heads and sizes only. A store that
    does not answer is a finding too."""
    wanted = set(queues)
    found: list[Finding] = []
    for ref in local.streams():
        if ref.queue in wanted:
            found += _examine_stream(local, remote, ref, states)
    return found


def _examine_stream(
    local: SqlStore, remote: Remote | None, ref: StreamRef, states: Collection[str]
) -> Iterator[Finding]:
    name, catalog = str(ref).encode(), Catalog(local, ref)
    known = catalog.known()
    if known.damage:
        yield Finding(ref.queue, "archive_damaged", name, known.damage)
    if known.state and states and known.state not in states:
        yield Finding(ref.queue, "foreign_archive", name, f"its log is of state {known.state}, which is not ours")
    if remote is None or not known.lsn:
        return
    try:
        if remote.size(commit_key(ref, known.lsn)) is None:
            yield Finding(ref.queue, "archive_head_missing", name, f"commit {known.lsn} is not in {remote.url}")
        newest = list(catalog.segments())[-SAMPLE:]
        for segment in newest:
            size = remote.size(segment.key)
            if size != segment.bytes:
                said = "is not there" if size is None else f"has {size} bytes, not {segment.bytes}"
                yield Finding(ref.queue, "archive_damaged", segment.key.encode(), said)
    except EmqError as fault:
        yield Finding(ref.queue, "store_unreachable", name, str(fault))


def examine_rights(databases: Iterable[Path]) -> list[Finding]:
    """Databases that others may get at; those of ours were tightened when they were opened."""
    told = ((path, files.loose(path)) for path in dict.fromkeys(databases))
    return [Finding("", "open_file", str(path).encode(), said) for path, said in told if said is not None]


def examine_disk(folders: Iterable[Path]) -> list[Finding]:
    """Folders of ours on file systems that are nearly full."""
    found = []
    for folder in dict.fromkeys(folders):
        there = next((path for path in itertools.chain([folder], folder.parents) if path.exists()), None)
        if there is not None and (free := shutil.disk_usage(there).free) < LOW_BYTES:
            found.append(Finding("", "disk_low", str(folder).encode(), f"{free // 1024 // 1024} MiB are free"))
    return found
