"""Which streams of which queues a command is about: two words, each a name, a glob, or several between commas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emq_ops.cli.context import CommandContext
from emq_ops.cli.queues import chosen, pick, require_queue
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.keyspace import queue_name, stream_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server

Target = tuple[str, str]
"""A queue and a stream of it, as a command line names them: ``dead`` is the dead jobs."""


def targets_of(context: CommandContext, selectors: Sequence[str], streams: str, server: Server) -> list[Target]:
    """The queues, each with '' where no `streams` are said. Raises BadInputError for what takes nothing."""
    if not streams:
        return [(queue, "") for queue in pick(context, selectors, server)]
    if one := alone(selectors, streams):
        require_queue(context, one[0], server, streams=(one[1],))
        return [(one[0], stream_name(one[1]))]
    known = _known(context, dead=False)
    names = pick(context, selectors, server)
    wanted = [(queue, stream) for queue in names for stream in streams.split(",") if not globs.is_glob(stream)]
    there = server.read_many([("EXISTS", Queue(server, queue).keys.stream(stream)) for queue, stream in wanted])
    known.update(one for one, found in zip(wanted, there, strict=True) if found)
    return _fitting(known, names, streams)


def archived_targets(context: CommandContext, selectors: Sequence[str], streams: str) -> list[Target]:
    """As `targets_of`, of what the local database of the archive knows and the config says, without a server. One that
    is named alone need not be known."""
    if one := alone(selectors, streams):
        require_queue(context, one[0])
        return [one]
    known = _known(context, dead=True)
    return _fitting(known, chosen(context, selectors, {queue for queue, _ in known}), streams)


def alone(selectors: Sequence[str], streams: str) -> Target | None:
    """The one stream that is named, None where there may be several."""
    plain = not any("," in one or globs.is_glob(one) for one in (*selectors, streams))
    return (queue_name(globs.literal(selectors[0])), globs.literal(streams)) if plain and len(selectors) == 1 else None


def _known(context: CommandContext, *, dead: bool) -> set[Target]:
    """The streams of the config's queues, and those that the archive's local database has heard of; the `dead` jobs of
    a queue there, too."""
    known = {(queue, name) for queue in context.layers.literals for name in context.layers.effective(queue).streams}
    if context.wiring.archive_local is not None:
        with context.local_for_a_look() as local:
            refs = [ref for ref in local.streams() if dead or ref.kind == "stream"]
        known.update((ref.queue, ref.stream if ref.kind == "dead" else _said(ref.stream, dead)) for ref in refs)
    return known


def _said(stream: str, dead: bool) -> str:
    """A stream as a command line names it, where ``dead`` may be the dead jobs."""
    return f"stream:{stream}" if dead and stream == "dead" else stream


def _fitting(known: Iterable[Target], queues: Sequence[str], streams: str) -> list[Target]:
    """Those of the queues' known streams that a name, a glob or several take. Raises BadInputError for none."""
    found = {
        one
        for one in known
        if one[0] in set(queues) and any(globs.matches(part, one[1]) for part in streams.split(",") if part)
    }
    if not found:
        shown = one_line(streams[:80])
        raise BadInputError(f"no stream '{shown}' of {', '.join(queues[:5])}", fix="see `emq-ops archive status`")
    return sorted(found)
