"""``emq-ops state``."""

from __future__ import annotations

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.deploying import deployment_of
from emq_ops.cli.options import Yes, new_app
from emq_ops.cli.output import say
from emq_ops.cli.take_over import take_over_state
from emq_ops.cli.values import file_of
from emq_ops.deploy.model import instant
from emq_ops.deploy.store import lock, transfer
from emq_ops.deploy.store.journal import interrupted
from emq_ops.deploy.store.lock import owner_of
from emq_ops.deploy.store.revisions import current_number
from emq_ops.passes.lease.owner import lease_info
from emq_ops.protocol.errors import EmqError, UnreachableError

app = new_app("The state: its lock, its journal, and moving it.")


@app.callback()
def state() -> None:
    """The state: its lock, its journal, and moving it."""


@app.command()
def status(ctx: typer.Context) -> None:
    """Say which revision is in force, who holds the lock, and what an apply left unfinished.

    Examples:

      emq-ops state status

      emq-ops state status --output json
    """
    context = CommandContext.of(ctx)
    with context.ledger_alone() as ledger, ledger.read() as connection:
        owner, cut = owner_of(connection), interrupted(connection)
        row: dict[str, object] = {
            "state": ledger.state,
            "database": ledger.where,
            "revision": current_number(connection),
            "lock": str(owner) if owner is not None else None,
            "lock_held": owner is not None and owner.held,
        }
    if cut is not None:
        running = owner is not None and owner.held
        row |= {
            "apply": cut.apply,
            "apply_by": cut.holder,
            "apply_started": instant(cut.started_ms),
            "apply_status": "under way"
            if running
            else f"interrupted in step {cut.step}"
            if cut.step
            else "interrupted",
            "apply_step": cut.step,
            "apply_steps": cut.steps,
        }
    context.emit_one(row)


@app.command()
def unlock(
    ctx: typer.Context,
    force: bool = typer.Option(False, "--force", help="Though its owner may be alive."),
) -> None:
    """Free the lock of an apply whose process is gone.

    Examples:

      emq-ops state unlock

      emq-ops state unlock --force
    """
    with CommandContext.of(ctx).ledger_alone() as ledger:
        before = lock.unlock(ledger, force=force)
    say("emq-ops: the lock was free" if before is None else f"emq-ops: freed; it was held by {before}")


@app.command()
def export(
    ctx: typer.Context,
    file: str = typer.Argument(..., metavar="FILE", help="Where to."),
    force: bool = typer.Option(False, "--force", help="Though a daemon may run."),
) -> None:
    """Write the whole state into a file, to import it elsewhere. The daemon must be stopped.

    Examples:

      emq-ops state export state.jsonl

      emq-ops state export state.jsonl --force
    """
    context = CommandContext.of(ctx)
    if not force:
        _no_daemon(context)
    with context.ledger_alone() as ledger:
        counts = transfer.export(ledger, file_of(file))
    context.emit_one({"file": file, "rows": sum(counts.values()), **counts})


@app.command("import")
def import_(ctx: typer.Context, file: str = typer.Argument(..., metavar="FILE", help="What `export` wrote.")) -> None:
    """Fill a fresh state (--state URL, or the config's) from an export. It then owns the queues; use the old one no
    more.

    Examples:

      emq-ops state import state.jsonl

      emq-ops state import state.jsonl --state sqlite:///new.db
    """
    context = CommandContext.of(ctx)
    with context.ledger_alone() as ledger:
        counts = transfer.load(ledger, file_of(file))
    with context.ledger_alone() as again:
        context.emit_one({"state": again.state, "rows": sum(counts.values()), **counts})


@app.command()
def backup(ctx: typer.Context, file: str = typer.Argument(..., metavar="FILE", help="Where to.")) -> None:
    """Copy the state while it is in use: of SQLite a database, of PostgreSQL an export.

    Examples:

      emq-ops state backup state-backup.db

      emq-ops state backup /srv/backup/state.db
    """
    context = CommandContext.of(ctx)
    with context.ledger_alone() as ledger:
        transfer.backup(ledger, file_of(file))
    context.emit_one({"file": file, "state": ledger.state})


@app.command("take-over")
def take_over(
    ctx: typer.Context,
    state: str | None = typer.Argument(None, metavar="STATE", help="The state whose database is gone."),
    yes: Yes = False,
) -> None:
    """Put this database in the place of one that is gone for good: its state's id, leases and archives.

    It is refused while a process of that database leads a queue. Before or after `archive restore`, and as often as
    one likes.

    Examples:

      emq-ops state take-over

      emq-ops state take-over 0f8fad5b-d9cb-469f-a165-70867728950e --yes
    """
    take_over_state(CommandContext.of(ctx), state, yes=yes)


def _no_daemon(context: CommandContext) -> None:
    """Raises EmqError where a daemon of this state leads a queue, or where that can't be told."""
    try:
        with deployment_of(context, "state") as session:
            applied = session.current()
            for queue in applied.document.queues if applied else ():
                lease = lease_info(session.server, queue)
                if lease is not None and lease.stands and lease.state == session.ledger.state:
                    raise EmqError(
                        f"the {lease.holder.role} {lease.holder} leads {queue}", where="state", fix="stop it first"
                    )
    except UnreachableError as fault:
        raise EmqError(
            f"can't tell whether a daemon runs: {fault.what}", where=fault.where, fix="--force, if none does"
        ) from fault
