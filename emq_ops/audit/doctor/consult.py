"""A whole consultation: the examination with what the ledger knows beside it, and mends that are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from emq_ops.audit.competing import competing
from emq_ops.audit.doctor.examination import SETTLE_SECONDS, Diagnosis, examine
from emq_ops.audit.doctor.finding import Finding
from emq_ops.audit.doctor.mend import Mended, mend
from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.server import Server

_LOOK_BACK = 200


def consult(
    server: Server,
    queues: Sequence[str],
    ledger: Ledger | None = None,
    *,
    settle: float = SETTLE_SECONDS,
    listed: frozenset[str] = frozenset(),
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """As `examine`; with a ledger also who competes with our passes, which is a fact of the deployment: it is told, not
    mended."""
    diagnosis = examine(server, queues, settle=settle, listed=listed, progress=progress)
    if ledger is not None:
        diagnosis.notes += [*competing(ledger, queues), *left_half_way(ledger, queues)]
    return diagnosis


def left_half_way(ledger: Ledger, queues: Sequence[str]) -> list[str]:
    """A sentence for each act that was killed or failed: jobs that a removal laid aside wait for its end."""
    found = [run for kind in (acts.REMOVE, acts.REQUEUE) for run in runs.latest(ledger, kind=kind, limit=_LOOK_BACK)]
    return [
        f"{run.queue}: the {run.kind} {run.id} by {run.holder} was not ended: "
        f"emq-ops audit dead --resume {run.id}" + (f", or emq-ops undo {run.id}" if run.kind == acts.REMOVE else "")
        for run in found
        if run.queue in set(queues) and run.status in (runs.RUNNING, runs.INTERRUPTED) and run.slices
    ]


def treat(
    server: Server,
    findings: Sequence[Finding],
    *,
    also: frozenset[str] = frozenset(),
    ledger: Ledger | None = None,
    holder: str = "",
) -> Iterator[Mended]:
    """As `mend`; with a ledger each queue's mends become a run of kind ``doctor``, with how many of each kind."""
    for queue in sorted({finding.queue for finding in findings}):
        here = [finding for finding in findings if finding.queue == queue]
        run = runs.start(ledger, "doctor", queue, holder=holder) if ledger is not None and queue else None
        counts: Counter[str] = Counter()
        for outcome in mend(server, here, also=also):
            counts[f"{outcome.finding.kind} {outcome.outcome}"] += 1
            yield outcome
        if ledger is not None and run is not None:
            with ledger.write() as connection:
                runs.finish(connection, run, runs.DONE, counts=dict(counts))
