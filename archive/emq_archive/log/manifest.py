"""Lists of the committed files, a UTC day each, for engines that read the folders (README, *Other engines*)."""

from __future__ import annotations

from emq_archive.local.catalog import Catalog
from emq_archive.log.commit import day_text, folder
from emq_archive.model import StreamRef
from emq_archive.ports import Remote


def manifest_key(ref: StreamRef, day: int) -> str:
    """Where the list of a day is."""
    return f"manifest/{folder(ref)}date={day_text(day)}/files.txt"


def write_manifest(catalog: Catalog, remote: Remote) -> int:
    """Writes the lists that are behind the log; answers how many. They are caches: written over, and made anew from
    the log at will."""
    due = catalog.manifest_due()
    for day in due:
        lines = sorted(map(remote.location, catalog.keys(day)))
        key = manifest_key(catalog.ref, day)
        if lines:
            remote.put(key, ("\n".join(lines) + "\n").encode("utf-8"))
        else:
            remote.delete([key])
        catalog.manifest_done(day)
    return len(due)
