"""Erasing a job from what is kept beside the archive: the state database, and backups of removals on the server."""

from __future__ import annotations

from collections.abc import Iterable

from emq_ops.ledger import acts
from emq_ops.ledger.erasure import StateErasure, TextColumns, erase_job
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server


def erase_kept(
    ledger: Ledger, server: Server | None, queue: str, job: str, also: Iterable[TextColumns] = ()
) -> StateErasure:
    """Erases a job's contents from the state, then from backups that a removal which was cut off left on the server
    (None: it is not asked). `also`: as `ledger.erasure.erase_job`. Harmless to repeat. Raises what they raise."""
    done = erase_job(ledger, queue, job, also)
    if server is not None:
        keys = keys_of(queue)
        backups = [key for item in acts.of_job(ledger, job) for key in keys.backups(item.run, job)]
        if backups:
            server.write("UNLINK", *backups)
    return done
