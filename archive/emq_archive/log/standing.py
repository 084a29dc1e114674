"""Damage that is known, looked at again: of the log alone it is over once every commit is back."""

from __future__ import annotations

from emq_archive.local.catalog import Catalog
from emq_archive.log.walk import told_missing, walk
from emq_archive.ports import Remote


def standing_damage(catalog: Catalog, remote: Remote) -> str | None:
    """What is known to be wrong with the archive, and is so still. Reads the log where it is commits alone that were
    missing, and forgets it where they are whole again. Raises what the remote raises."""
    known = catalog.known()
    if known.damage is None or not known.damage_in_log:
        return known.damage
    found = walk(remote, catalog.ref, known, set())
    faults = [*told_missing(found), *found.faults]
    if found.rewritten:
        return known.damage
    return catalog.damaged(faults, in_log=True)
