"""Whether another pump fires the repeatables of the queues that this daemon leads: looked for now and then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit
from emq_ops.passes.observe.pumps import look_at_pumps, note_pump
from emq_ops.protocol.errors import ServerError, WireError
from emq_ops.protocol.server import Server

EVERY_SECONDS = 15.0


class Pumps:
    """For one thread."""

    def __init__(self, server: Server, ledger: Ledger, emit: Emit) -> None:
        self._server, self._ledger, self._emit = server, ledger, emit

    def look(self, queues: Iterable[str]) -> None:
        """One look at each. Raises what the ledger raises."""
        for queue, seen in look_at_pumps(self._server, queues).items():
            if seen.marks:
                with contextlib.suppress(ServerError, WireError):  # one queue that can't be written holds up no other
                    note_pump(self._server, self._ledger, self._emit, queue, seen)
