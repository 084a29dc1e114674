"""``emq-ops archive erase``: a job's contents out of every place that we write."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from emq_archive.local.store import SqlStore
from emq_archive.model import LAST_ID, StreamId, StreamRef
from emq_archive.ports import Remote
from emq_archive.upkeep.erase import Erased, erase_job
from emq_archive.upkeep.erase_versions import VersionErasure, erase_versions
from emq_ops.cli.archive_read import job_text, point, ref_of
from emq_ops.cli.archive_upkeep import shipper_of
from emq_ops.cli.asking import ask
from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import DryRun, QueueArg, Yes
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.queues import require_queue
from emq_ops.cli.values import now_ms
from emq_ops.ledger.erasure import count_kept, scrub_state
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.erase import erase_kept
from emq_ops.passes.lease.owner import check_owner
from emq_ops.playbook.store.schema import TEXTS
from emq_ops.protocol.errors import BadInputError, EmqError, UnreachableError, one_line
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import keys_of, queue_name
from emq_ops.protocol.server import Server


@dataclass(slots=True)
class _Erasure:
    """What an erasure did, over all its streams."""

    queue: str
    stream: str
    job: str
    upto: StreamId
    dry_run: bool
    streams: list[Erased] = field(default_factory=list)
    state: dict[str, int] = field(default_factory=dict)
    versions: VersionErasure = field(default_factory=VersionErasure)
    notes: list[str] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        """As a plain dict; with one stream the numbers are its own."""
        sums = {name: sum(getattr(one, name) for one in self.streams) for name in ("records", "segments", "deleted")}
        return {
            "queue": self.queue,
            "stream": self.stream,
            "job": self.job,
            **sums,
            "upto": f"{self.upto[0]}-{self.upto[1]}",
            "lsn": max((one.lsn for one in self.streams), default=0),
            "state": self.state,
            "versions": self.versions.removed,
            "versions_stay": self.versions.stay,
            "dry_run": self.dry_run,
            "notes": self.notes,
        }


def erase(
    ctx: typer.Context,
    queue: QueueArg,
    stream: Annotated[
        str | None, typer.Argument(help="Only this stream of the archive ('dead' for dead jobs); all without.")
    ] = None,
    job: Annotated[str, typer.Option("--job", help="The job whose records go.", metavar="JOB")] = "",
    upto: Annotated[
        str | None, typer.Option("--to", help="Only records of the archive up to here.", metavar="WHEN")
    ] = None,
    versions: Annotated[
        bool, typer.Option("--versions", help="Delete older versions in the bucket too, where it allows that.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Take a job out of every place that emq-ops writes: segments (rewritten), the local database, the state database,
    journals of playbooks, backups of removals. It never comes back.

    Entries in the stream itself, and the job where it still stands in the queue, stay; they are not archived again.
    With STREAM other streams of the archive are left as they are.
    With --to just the archive is gone through.

    Examples:

      emq-ops archive erase orders --job JOB0SS8QFjgi3i --dry-run

      emq-ops archive erase orders --job JOB0SS8QFjgi3i --versions --yes
    """
    context = CommandContext.of(ctx)
    job = job_text(job) or ""
    if not job:
        raise BadInputError("no job is named", fix="--job JOB")
    name, bound = queue_name(queue), point(upto, last=True) or LAST_ID
    require_queue(context, name)
    if context.layers.effective(name).protect:
        raise BadInputError(f"queue {name} is protected", fix="take `protect: true` out of the config first")
    done = _Erasure(name, stream or "*", job, bound, dry_run)
    where = f"the archive of {name}" if upto else "the archive, the state and the journals"
    with context.ledger() as ledger, _archive(context) as (local, remote):
        if not dry_run and not ask(context, f"Erase every record of {job} from {where}?", yes):
            raise typer.Abort
        if upto is None and job.startswith("JOB") and is_valid(job):
            _erase_state(context, ledger, done)
        elif upto is not None:
            done.notes.append("the state database was not gone through: --to bounds records of the archive alone")
        if local is not None and remote is not None:
            for ref in [ref_of(name, stream)] if stream else _streams(context, local, name):
                _erase_stream(context, ledger, local, remote, ref, done, versions=versions)
    for note in done.notes:
        say(f"emq-ops: {one_line(note)}")
    context.emit_one(done.as_row())


@contextlib.contextmanager
def _archive(context: CommandContext) -> Any:
    """The archive as configured, (None, None) where there is none."""
    if context.wiring.archive_local is None or context.wiring.archive_remote is None:
        yield None, None
        return
    with context.local() as local, context.remote() as remote:
        yield local, remote


def _streams(context: CommandContext, local: SqlStore, queue: str) -> list[StreamRef]:
    """Those that the archive has, and those that may come into it: the word stands in the log before a record does."""
    named = [StreamRef(queue, stream) for stream in context.layers.effective(queue).streams]
    known = [ref for ref in local.streams() if ref.queue == queue]
    return list(dict.fromkeys([StreamRef.dead(queue), *known, *named]))


def _erase_state(context: CommandContext, ledger: Ledger, done: _Erasure) -> None:
    queue, job = done.queue, done.job
    if done.dry_run:
        done.state = count_kept(ledger, queue, job)._asdict()
        return
    with contextlib.ExitStack() as stack:
        server: Server | None = None
        if context.names_server:
            try:
                server = stack.enter_context(context.server("erase"))
                check_owner(server, queue, ledger)
                if server.read("EXISTS", keys_of(queue).row(job)):
                    done.notes.append(f"{job} still stands in the queue; nothing of it is kept again")
            except UnreachableError as fault:
                server = None
                done.notes.append(f"the server was not asked for backups of removals that were cut off: {fault}")
        done.state = erase_kept(ledger, server, queue, job, TEXTS)._asdict()
    done.notes += scrub_state(ledger, TEXTS)


def _erase_stream(
    context: CommandContext,
    ledger: Ledger,
    local: SqlStore,
    remote: Remote,
    ref: StreamRef,
    done: _Erasure,
    *,
    versions: bool,
) -> None:
    shipper = shipper_of(context, ref, ledger, local, remote)
    with bar(f"erase {done.job}") as progress:
        one = erase_job(shipper, done.job, done.upto, now_ms=now_ms(), dry_run=done.dry_run, progress=progress)
    done.streams.append(one)
    done.notes += one.notes
    if not done.dry_run:
        try:
            found = erase_versions(shipper, done.job, done.upto, remove=versions)
        except EmqError as fault:
            done.notes.append(f"older versions in the store were not looked for: {fault}")
            return
        done.versions.removed += found.removed
        done.versions.stay += found.stay
        done.notes += found.notes


COMMANDS = (erase,)
