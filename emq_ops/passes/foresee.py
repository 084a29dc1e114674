"""What acts would do, seen before they do it."""

from __future__ import annotations

from emq_ops.database.statements import pages
from emq_ops.ledger import acts
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts import ActReport, Chosen, unended
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server


def see_parents(server: Server, chosen: Chosen) -> None:
    """Notes which of the jobs are flow parents whose children still report to them: a removal leaves them alone."""
    keys = keys_of(chosen.queue)
    for page in pages([job for job, _, _ in chosen.jobs]):
        counts = server.read_many([("GET", keys.book(job, "dependencies")) for job in page])
        for job, count in zip(page, counts, strict=True):
            if (count or b"0") != b"0":
                chosen.stay.setdefault(job, "parent")


def left_of(ledger: Ledger, run: str) -> ActReport:
    """What `resume` would still do, as a dry run. Raises BadInputError as it does."""
    found = unended(ledger, run)
    with ledger.read() as connection:
        waiting = acts.totals(connection, run).get(acts.PLANNED, 0)
    return ActReport(found.kind, found.queue, run, status="dry", selected=waiting if found.slices else 0)
