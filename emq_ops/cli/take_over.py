"""``emq-ops state take-over``: this database in the place of one that is gone."""

from __future__ import annotations

from emq_ops.cli.asking import ask
from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import Lineage
from emq_ops.passes.lease.take_over import Estate, estates, take_over
from emq_ops.protocol.errors import BadInputError


def take_over_state(context: CommandContext, state: str | None, *, yes: bool) -> None:
    """Takes over `state` (None: the one that is there) whole: id, leases, archives. Once more is no harm."""
    with context.server("take-over") as server, context.ledger() as ledger:
        found, logs = estates(server, ledger), _archives(context)
        ours = Lineage(ledger)
        named = {*found, *(owner for owner, _ in logs.values() if owner not in ours.states)}
        if ours.older is not None:
            named.add(ledger.state)
        if state is None:
            state = _only(named, ledger)
        if state not in named and state not in ours.states:
            known = f"one of {', '.join(sorted(named))}" if named else "nothing here is of another state"
            raise BadInputError(f"nothing here belongs to state {state}", fix=known)
        estate = found.get(state) or Estate(state)
        estate.check()
        mine = {name: token for name, (owner, token) in logs.items() if owner == state}
        was = ledger.state
        if state in named:
            _confirm(context, estate, len(mine), yes)
            floors: dict[str, int] = {}
            for (queue, _), token in mine.items():
                floors[queue] = max(token, floors.get(queue, 0))
            taken = take_over(server, ledger, estate, floors)
        else:
            say(f"emq-ops: state {state} is this database's already")
            taken = {}
        context.emit_one(
            {
                "state": ledger.state,
                "database": ledger.where,
                "was": was,
                "held_by": estate.holder,
                "queues": len(taken),
                "archives": len(mine),
            }
        )


def _only(named: set[str], ledger: Ledger) -> str:
    if not named:
        return ledger.state
    if len(named) > 1:
        raise BadInputError("several states own what is here", fix=f"name one of {', '.join(sorted(named))}")
    return next(iter(named))


def _confirm(context: CommandContext, estate: Estate, archives: int, yes: bool) -> None:
    """Names what ends, and asks."""
    names = sorted(estate.leases)
    some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    what = f"{len(names)} queues ({some})" if names else "no queue"
    holder = f", last held by {estate.holder}" if estate.holder else ""
    say(f"emq-ops: this ends the database of state {estate.state}{holder}: {what}, {archives} archives")
    if not ask(context, "Take all of it over, for good?", yes):
        raise BadInputError("nothing was taken over")


def _archives(context: CommandContext) -> dict[tuple[str, str], tuple[str, int]]:
    """(queue, stream) -> state and token of each archive of the remote; none where no remote is configured."""
    if context.wiring.archive_remote is None:
        return {}
    from emq_archive.log.owners import owners

    with context.remote() as remote:
        return {(log.ref.queue, str(log.ref)): (log.state, log.token) for log in owners(remote)}
