"""Which queues a command is about."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from emq_ops.cli.context import CommandContext
from emq_ops.deploy.store import revisions
from emq_ops.ledger import interruptions
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import is_there


def chosen(selectors: Sequence[str], live: Iterable[str], named: Iterable[str] = ()) -> list[str]:
    """The queues that `selectors` (names or globs) take of those on the server (`live`) and in the config (`named`);
    all of them without a selector. Raises BadInputError for one that takes nothing: never "all" by mistake."""
    known = sorted({*live, *named})
    if not selectors:
        return known
    out: set[str] = set()
    for selector in selectors:
        taken = globs.select(selector, known)
        if not taken:
            if not globs.is_glob(selector):
                queue_name(globs.literal(selector))
            raise BadInputError(
                f"no queue matches '{one_line(selector[:80])}'",
                fix=_near(selector, known) or "name one that has keys on the server or stands in the config",
            )
        out.update(taken)
    return sorted(out)


def require_queue(context: CommandContext, server: Server, queue: str, *streams: str, fix: str | None = None) -> None:
    """Raises BadInputError, with the nearest names, for a queue that nothing names: neither the config nor the revision
    in force, no key of the server (or one of `streams`), no pass of the ledger, no stream of the archive. `fix`: what
    else the user may have meant."""
    if queue in context.layers.literals or is_there(Queue(server, queue), *streams):
        return
    names = {*context.layers.literals}
    with context.ledger_if_there() as ledger:
        if ledger is not None:
            names.update(interruptions.contacted_queues(ledger))
            applied = revisions.current(ledger)
            names.update(applied.document.queues if applied is not None else ())
    if queue not in names and context.wiring.archive_local is not None:
        with context.local_for_a_look() as local:
            names.update(ref.queue for ref in local.streams())
    if queue in names:
        return
    known = {*names, *server.queues()}
    ways = [way for way in (_near(queue, known), fix) if way]
    raise BadInputError(
        f"no such queue '{one_line(queue[:80])}'", fix="; ".join(ways) or "see which queues there are: emq-ops doctor"
    )


def _near(queue: str, known: Iterable[str]) -> str:
    """``did you mean 'orders'?``, with at most three names; empty where none is near."""
    near = difflib.get_close_matches(queue, sorted(set(known)), 3, 0.6)
    return f"did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
