"""Which queues a command is about."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from emq_ops.cli.completion.remembered import remember
from emq_ops.cli.context import CommandContext
from emq_ops.policy.words import near_names
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import is_there


class UnknownQueueError(BadInputError):
    """Nothing names the queue. `mistyped`: there are others with a name like it."""

    mistyped = False


def chosen(
    context: CommandContext, selectors: Sequence[str], offered: Iterable[str], server: Server | None = None
) -> list[str]:
    """The queues that `selectors` (names or globs) take of those that are `offered`; all of these without a selector. A
    name takes its queue wherever that is named (`require_queue`). Raises BadInputError for a selector that takes
    nothing: never "all" by mistake."""
    known = sorted({*offered})
    if not selectors:
        return known
    out: set[str] = set()
    for selector in apart(context, selectors, server):
        taken = globs.select(selector, known)
        if not taken and globs.is_glob(selector):
            raise BadInputError(
                f"no queue matches '{one_line(selector[:80])}'",
                fix=near_names(selector, known) or "name one that has keys on the server or stands in the config",
            )
        if not taken:
            taken = [globs.literal(selector)]
            require_queue(context, taken[0], server, near=known)
        out.update(taken)
    return sorted(out)


def apart(context: CommandContext, selectors: Sequence[str], server: Server | None) -> list[str]:
    """Selectors with those between commas by themselves, unless there is a queue with commas in its name."""
    out: list[str] = []
    for selector in selectors:
        whole = "," not in selector or is_named(context, globs.literal(selector), server)
        out += [selector] if whole else [part for part in selector.split(",") if part]
    return out


def pick(context: CommandContext, selectors: Sequence[str], server: Server, more: Iterable[str] = ()) -> list[str]:
    """As `chosen`, of the queues of the server and of the config, and of `more`. The server is asked which there are
    only where a glob, or no selector, wants to know. Raises BadInputError, UnreachableError."""
    offered = {*context.layers.literals, *more}
    if not selectors or any(map(globs.is_glob, selectors)):
        from emq_ops.overview.look import live_queues  # and what it looks at: a name needs none of it

        offered.update(live_queues(server))
        remember("queues", offered)
    return chosen(context, selectors, offered, server)


def require_queue(
    context: CommandContext,
    queue: str,
    server: Server | None = None,
    *,
    streams: Sequence[str] = (),
    near: Iterable[str] = (),
    fix: str | None = None,
) -> None:
    """Raises BadInputError, with the nearest names, for a queue that nothing names: neither the config nor the revision
    in force, no hold and no pass of the ledger, no stream of the archive, no key of the server (with its `streams` the
    question is cheaper).

    `server`: opened unless it is given, where one was named; `near`: more names to compare with; `fix`: what else the
    user may have meant. Raises UnreachableError where only the server could tell.
    """
    queue_name(queue)
    if queue in context.layers.literals or (server is not None and is_there(Queue(server, queue), *streams)):
        return
    names = {*context.layers.literals, *_in_ledger(context)}
    if queue in names:
        return
    names |= _in_archive(context, queue)
    if queue in names:
        return
    with contextlib.ExitStack() as stack:
        if server is None and context.names_server:
            server = stack.enter_context(context.server("look"))
        if server is not None:
            names.update(server.queues())
    if queue in names:
        return
    likely = near_names(queue, {*names, *near})
    fix = "; ".join(way for way in (likely, fix) if way) or "see which queues there are: emq-ops queue ls"
    fault = UnknownQueueError(f"no such queue '{one_line(queue[:80])}'", fix=fix)
    fault.mistyped = bool(likely)
    raise fault


def is_new(context: CommandContext, queue: str, server: Server) -> bool:
    """Whether nothing names the queue. Raises UnknownQueueError where another has a name like it: that one is meant,
    more likely than a new one."""
    try:
        require_queue(context, queue, server, fix="--new for a queue of this name")
    except UnknownQueueError as fault:
        if fault.mistyped:
            raise
        return True
    return False


def is_named(context: CommandContext, queue: str, server: Server | None = None) -> bool:
    """Whether anything names the queue: see `require_queue`."""
    try:
        require_queue(context, queue, server)
    except BadInputError:
        return False
    return True


def _in_ledger(context: CommandContext) -> set[str]:
    # And SQLAlchemy: just where neither the config nor the server names the queue.
    from emq_ops.deploy.store import revisions
    from emq_ops.ledger import holds, interruptions

    with context.ledger_if_there() as ledger:
        if ledger is None:
            return set()
        applied = revisions.current(ledger)
        of_revision = applied.document.queues if applied is not None else ()
        held = (hold.queue for hold in holds.all_holds(ledger))
        return {*interruptions.contacted_queues(ledger), *of_revision, *held}


def _in_archive(context: CommandContext, queue: str) -> set[str]:
    """The queues of the local database, and `queue` where the object store has a log of it."""
    names: set[str] = set()
    if context.wiring.archive_local is not None:
        with context.local_for_a_look() as local:
            names.update(ref.queue for ref in local.streams())
    if queue not in names and context.wiring.archive_remote is not None:
        from emq_archive.log.commit import has_log  # and its parts: just where a store must be asked

        with context.remote() as remote:
            if has_log(remote, queue):
                names.add(queue)
    return names
