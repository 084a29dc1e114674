"""What ``emq-ops doctor`` says of what the product rests on, as far as it is configured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from emq_ops.audit.doctor import foundations
from emq_ops.audit.doctor.finding import Finding
from emq_ops.cli.context import CommandContext
from emq_ops.daemon import clock
from emq_ops.daemon.status import task_rows
from emq_ops.database.profile import file_of
from emq_ops.deploy.store import revisions
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import states_of
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.server import Server


@contextlib.contextmanager
def state_of(context: CommandContext, found: list[Finding]) -> Iterator[Ledger | None]:
    """Opens the state; where it can't be opened, read whole or written to, that is `found`, and there is none."""
    with contextlib.ExitStack() as stack:
        ledger = None
        try:
            ledger = stack.enter_context(context.ledger_if_there())
        except EmqError as fault:
            found.append(Finding("", "state_unusable", (fault.where or "").encode(), str(fault)))
        if ledger is not None:
            found += foundations.examine_state(ledger)
        yield None if found else ledger


def foundations_of(
    context: CommandContext, server: Server | None, queues: Sequence[str], ledger: Ledger | None
) -> list[Finding]:
    """What is wrong with what the product rests on. `server`: None where it does not answer."""
    found = foundations.examine_disk([file.parent for file in _files(context)])
    if server is not None:
        found += foundations.examine_server(server)
        found += foundations.examine_clocks(_clocks(server, ledger))
    if server is not None and ledger is not None:
        found += foundations.examine_leases(server, ledger, queues)
    if ledger is not None:
        found += _overdue(context, server, ledger, queues)
    found += _archive(context, queues, ledger)
    return found + foundations.examine_rights(_files(context))  # what was opened, was tightened


def _clocks(server: Server, ledger: Ledger | None) -> dict[str, int]:
    seconds, micros = server.read("TIME")
    read = {"this host": clock.now_ms(), server.where: int(seconds) * 1000 + int(micros) // 1000}
    of_state = ledger.clock_ms() if ledger is not None else None
    return read | ({ledger.where: of_state} if ledger is not None and of_state is not None else {})


def _overdue(context: CommandContext, server: Server | None, ledger: Ledger, queues: Sequence[str]) -> list[Finding]:
    """Tasks of the revision in force that did not run when they were due."""
    revision = revisions.current(ledger)
    if revision is None:
        return []
    wanted = set(queues)
    return [
        Finding(row["queue"], "overdue", row["task"].encode(), _lateness(row))
        for row in task_rows(server, ledger, revision, context.wiring.env)
        if row["queue"] in wanted and (row["overdue_ms"] or 0) >= OVERDUE_MS
    ]


OVERDUE_MS = 60_000
"""A run that is late by less is no finding: a daemon may just be starting."""


def _lateness(row: dict[str, Any]) -> str:
    leader = f"{row['leader']} leads" if row["leader"] else "nobody leads the queue"
    return f"by {row['overdue_ms'] // 1000} s; {leader}"


def _files(context: CommandContext) -> list[Path]:
    """The databases that are files."""
    urls = [context.wiring.state_url]
    urls += [context.local_url] if context.wiring.archive_local is not None else []
    return [Path(file) for url in urls if (file := file_of(url)) is not None]


def _archive(context: CommandContext, queues: Sequence[str], ledger: Ledger | None) -> list[Finding]:
    if context.wiring.archive_local is None:
        return []
    try:
        with contextlib.ExitStack() as stack:
            local = stack.enter_context(context.local_for_a_look())
            there = context.wiring.archive_remote is not None
            remote = stack.enter_context(context.remote()) if there else None
            states = states_of(ledger) if ledger is not None else ()
            found = foundations.examine_archive(local, remote, queues, states)
            return found + (foundations.examine_logs(local, ledger, queues) if ledger is not None else [])
    except EmqError as fault:
        return [Finding("", "archive_unreadable", context.local_url.encode(), str(fault))]
