"""Where the jobs of a command line are."""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.cli.context import CommandContext
from emq_ops.cli.queues import pick
from emq_ops.overview.jobs import whereabouts
from emq_ops.overview.near_jobs import unknown_job
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.server import Server


def located(
    context: CommandContext, server: Server, jobs: Sequence[str], queue: str | None
) -> dict[str, tuple[str, str]]:
    """Where each job is: its queue and state there. Raises BadInputError for one that is nowhere, or in several
    queues."""
    names = pick(context, [queue] if queue else (), server)
    found: dict[str, tuple[str, str]] = {}
    for job in dict.fromkeys(jobs):
        places = whereabouts(server, job, names) if is_valid(job) else {}
        if not places:
            raise unknown_job(server, job, names, f"where it was last: emq-ops job show {job}")
        if len(places) > 1:
            raise BadInputError(f"{job} is in {', '.join(places)}", fix="say which: --queue QUEUE")
        found[job] = next(iter(places.items()))
    return found
