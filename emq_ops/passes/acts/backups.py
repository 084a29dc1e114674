"""Jobs that a removal laid aside on the server, whole, until the ledger has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from emq_ops.database.statements import pages
from emq_ops.ledger.snapshot import JobSnapshot
from emq_ops.protocol.keyspace import Keys
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

_READ_BUDGET = 4 * 1024 * 1024


def read_backups(server: Server, keys: Keys, run: str, jobs: Sequence[str]) -> dict[str, JobSnapshot]:
    """The jobs that `run` laid aside, in bounded replies; those that are not there are left out."""
    out: dict[str, JobSnapshot] = {}
    todo = list(jobs)
    while todo:
        args: list[Arg] = [keys.backup_prefix(run), _READ_BUDGET, *todo]
        replies = server.run(load("act_read"), [keys.acted(run)], args, readonly=True)
        for job, reply in zip(todo, replies, strict=False):
            if reply[0]:
                whole = JobSnapshot.of_reply(*reply[:-1])
                out[job] = replace(whole, place=reply[-1] or b"")
        todo = todo[len(replies) :]
    return out


def delete_backups(server: Server, keys: Keys, run: str, jobs: Iterable[str]) -> None:
    """Lets go of jobs that `run` laid aside and the ledger has."""
    for page in pages(list(jobs), 100):
        server.write("UNLINK", *[key for job in page for key in keys.backups(run, job)])
