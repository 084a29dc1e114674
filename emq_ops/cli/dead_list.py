"""``emq-ops dead ls``: dead jobs, a row a job."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from emq_ops.audit.dead import AuditOptions, DeadAuditor
from emq_ops.cli.audit_dead import JOBS, job_row, tell_errors
from emq_ops.cli.audit_parts import longest_lease, queues_of
from emq_ops.cli.context import CommandContext
from emq_ops.cli.dead_options import DeadFilters, Limit, Oldest, filtering, limited
from emq_ops.cli.options import SomeQueues
from emq_ops.cli.output import counted, say
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.errors import one_line
from emq_ops.protocol.server import Server


@filtering
def ls(
    ctx: typer.Context,
    queues: SomeQueues = None,
    limit: Limit = None,
    oldest: Oldest = False,
    *,
    filters: DeadFilters,
) -> None:
    """List dead jobs, a row a job; a line for each error that several queues share.

    Examples:

      emq-ops dead ls orders --error 'HTTP 5*' --limit 20 --oldest

      emq-ops dead ls 'mail-*' --newer 1h --output csv
    """
    context = CommandContext.of(ctx)
    with context.server("dead") as server, context.ledger_if_there() as ledger:
        auditor = auditor_of(context, server, ledger, queues, filters)
        jobs = limited(auditor.jobs(), limit, oldest=oldest, minted=lambda pair: pair[0].job)
        context.emit_rows((job_row(one, why) for one, why in jobs), JOBS)
        found = auditor.finish()
    for note in found.notes:
        say(f"note: {one_line(note)}")
    tell_errors(found)
    say(f"{found.dead} dead in {counted(len(found.queues), 'queue')}")


def auditor_of(
    context: CommandContext,
    server: Server,
    ledger: Ledger | None,
    queues: Sequence[str] | None,
    filters: DeadFilters,
) -> DeadAuditor:
    names = queues_of(context, server, queues, ledger)
    wanted = AuditOptions(only_suspects=filters.suspects, lease_ms=longest_lease(context, names))
    return DeadAuditor(server, names, filters.selection, ledger, wanted)
