"""Which queues a play is about. A pattern that matches nothing is an error, never "every queue"."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from emq_ops.playbook.errors import wrong
from emq_ops.policy.words import nearest
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import is_there
from emq_ops.syntax.errors import Position


class Finder:
    """Finds queues by name or pattern, among those that the config names and those that have keys.

    A name without wildcards is that queue and no other; it is looked for without a scan, and where nothing else has it
    `named` is asked.
    """

    def __init__(
        self, server: Server, configured: Sequence[str], named: Callable[[str], bool] = lambda _queue: False
    ) -> None:
        self._server = server
        self._configured = list(configured)
        self._named = named

    @functools.cached_property
    def _all(self) -> list[str]:
        return sorted({*self._configured, *self._server.queues()})

    def find(self, selector: str, pos: Position | str) -> list[str]:
        """The queues that `selector` takes, sorted. Raises PlaybookError at `pos` where there are none."""
        if not selector.strip():
            wrong(pos, "a queue pattern is empty", "an empty pattern never means every queue; write '*' for that")
        if selector in self._configured:
            return [selector]
        if not globs.is_glob(selector):
            name = globs.literal(selector)
            if name in self._configured or self._exists(name, pos):
                return [name]
        found = globs.select(selector, self._all)
        if not found:
            kind = "pattern" if globs.is_glob(selector) else "name"
            near = nearest(selector, self._all)
            what = f"the {kind} '{one_line(selector)}' matches no queue"
            wrong(
                pos,
                what,
                f"did you mean '{near}'?" if near else "see `emq-ops import`; name it in the config if it is new",
            )
        return found

    def _exists(self, name: str, pos: Position | str) -> bool:
        try:
            queue = Queue(self._server, name)
        except BadInputError as fault:
            wrong(pos, fault.what, fault.fix)
        return is_there(queue) or self._named(name)
