"""The revision that a daemon runs: what it takes from it besides tasks, and whether another has come into force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emq_ops.config.windows import around
from emq_ops.daemon import clock
from emq_ops.daemon.events import RevisionRefused
from emq_ops.daemon.settings import DaemonSettings, settings_of
from emq_ops.deploy.store import revisions
from emq_ops.deploy.store.revisions import Revision
from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit
from emq_ops.passes.frame.stores import Stores
from emq_ops.protocol.errors import BadInputError, EmqError

MakeStores = Callable[[Revision], Stores]
"""Opens nothing yet: the archive's stores as a revision has them."""


class NothingAppliedError(EmqError):
    """There is no revision to run. `where`: the state."""

    def __init__(self, where: str) -> None:
        super().__init__("nothing was applied yet", where=where, fix="emq-ops apply, or up --apply")


@dataclass(frozen=True, slots=True)
class Successor:
    """A revision that can be taken over. `stores`: None where they are those that we have."""

    revision: Revision
    terms: DaemonSettings
    stores: Stores | None


class AppliedRevision:
    """`revision` and `terms` are those in force here; `begun`: the document that the daemon started with; `refused`:
    the number of a revision that this process can't take over, None where there is none."""

    def __init__(self, ledger: Ledger, env: Mapping[str, str], make_stores: MakeStores, emit: Emit) -> None:
        """Raises NothingAppliedError, BadInputError for a reference that can't be resolved, and what the ledger
        raises."""
        self._ledger, self._env, self._make_stores, self._emit = ledger, env, make_stores, emit
        found = revisions.current(ledger)
        if found is None:
            raise NothingAppliedError(ledger.where)
        self.revision = found
        self.terms = settings_of(found.document, env)
        self.begun = found.document
        self.refused: int | None = None
        self._windows: tuple[float, list[Window]] = (0.0, [])

    def successor(self) -> Successor | None:
        """The revision that came into force since, resolved whole; None where none did, or it is no good here (said
        once: it stays so in this process)."""
        with self._ledger.read() as connection:
            number = revisions.current_number(connection)
        if number is None or number in (self.revision.number, self.refused):
            return None
        try:
            found = revisions.current(self._ledger)
            if found is None:
                return None
            terms = settings_of(found.document, self._env)
            same = found.document.globals.get("archive") == self.revision.document.globals.get("archive")
            return Successor(found, terms, None if same else self._make_stores(found))
        except BadInputError as fault:
            self.refused = number
            self._emit(RevisionRefused("*", revision=number, error=str(fault)))
            return None

    def take(self, found: Successor) -> None:
        """It is in force here from now on."""
        self.revision, self.terms, self.refused = found.revision, found.terms, None
        self._windows = (0.0, [])

    def open_windows(self) -> list[Window]:
        """The config's maintenance windows that may matter now; looked up once a second."""
        now = clock.steady()
        if now >= self._windows[0]:
            self._windows = (now + 1.0, around(self.terms.maintenance, clock.now_ms()))
        return self._windows[1]
