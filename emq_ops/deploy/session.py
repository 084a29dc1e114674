"""Planning and applying as calls: a config or a revision in, a plan or a new revision out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emq_ops.config.effective import Layers
from emq_ops.config.errors import ConfigError
from emq_ops.config.explain import combine
from emq_ops.config.loader import Loaded, unset_references
from emq_ops.config.wiring import Wiring
from emq_ops.deploy import apply as doing
from emq_ops.deploy import journal, revisions, saved
from emq_ops.deploy.document import Document
from emq_ops.deploy.live import read_live
from emq_ops.deploy.lock import Owner, owner_of
from emq_ops.deploy.model import Drift, Interrupted, Live, Plan
from emq_ops.deploy.planner import drift_of, plan
from emq_ops.deploy.render import as_json
from emq_ops.deploy.revisions import Revision
from emq_ops.ledger.ledger import Ledger, host_ms, open_ledger
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan, the document that it leads to and what it was made of: enough to make it again. `live`: the facts."""

    plan: Plan
    document: Document
    files: list[dict[str, str]] = field(default_factory=list)
    revert: tuple[str, ...] = ()
    live: Live = field(default_factory=Live, repr=False)


class Session:
    """A server and the state that owns its queues. `env`: where references are looked up."""

    def __init__(self, server: Server, ledger: Ledger, wiring: Wiring) -> None:
        self.server, self.ledger, self.env = server, ledger, wiring.env
        self.where = server.where

        self._current: Revision | None = None

    def current(self) -> Revision | None:
        """The revision in force."""
        with self.ledger.read() as connection:
            number = revisions.current_number(connection)
        if number is None or self._current is None or self._current.number != number:
            self._current = revisions.current(self.ledger)
        return self._current

    def standing(self) -> tuple[Interrupted | None, Owner | None]:
        """An apply that did not end, and whoever holds the lock. While it is held, its apply is merely running."""
        with self.ledger.read() as connection:
            owner = owner_of(connection)
            cut = journal.interrupted(connection)
        return (None if owner is not None and owner.held else cut), owner

    def desired(self, loaded: Loaded) -> tuple[Document, Live]:
        """What the config wants on this server; the globs that take no queue are noted. Raises ConfigError for one
        that should take one."""
        layers = Layers(loaded)
        layers.check()
        applied = self.current()
        known = set(applied.document.queues) if applied else set()
        if layers.patterns:
            known.update(self.server.queues())
        noted = Live()
        queues = layers.queues(known)
        for selector in layers.unmatched(queues):
            raise ConfigError(
                f"the glob '{selector}' takes no queue",
                layers.mark(selector),
                path=f"queues.{selector}",
                fix=_near(selector, known) + "`optional: true` in it, if that is right",
            )
        noted.unmatched_optional = [s for s in layers.patterns if not layers.takes_any(s, queues)]
        return Document.of(loaded, layers, queues), noted

    def propose(
        self, loaded: Loaded, revert: Sequence[str] = (), *, as_of: Mapping[str, int] | None = None
    ) -> Proposal:
        """The plan from what is in force, and live, to `loaded`. Raises ConfigError where a variable is not set."""
        require_set(loaded)
        document, noted = self.desired(loaded)
        files = [{"path": str(source.path), "sha256": source.sha256} for source in loaded.sources]
        return self._proposal(document, "apply", files, tuple(revert), noted.unmatched_optional, as_of=as_of)

    def propose_document(self, document: Document, kind: str) -> Proposal:
        """The plan to a given document: that of an earlier revision (``rollback``), or an empty one (``destroy``)."""
        return self._proposal(document, kind, [], (), [])

    def _proposal(
        self,
        document: Document,
        kind: str,
        files: list[dict[str, str]],
        revert: tuple[str, ...],
        noted: list[str],
        *,
        locked: bool = False,
        as_of: Mapping[str, int] | None = None,
    ) -> Proposal:
        """`locked`: the lock is ours, so that an apply that did not end did end. `as_of`: see `read_live`."""
        applied = self.current()
        with self.ledger.read() as connection:
            owner = None if locked else owner_of(connection)
            cut = None if owner is not None and owner.held else journal.interrupted(connection)
        before = applied.document if applied else None
        live = read_live(self.server, self.ledger, document, before, self.env, cut, as_of)
        live.unmatched_optional = noted
        made = plan(
            document,
            before,
            live,
            env=self.env,
            base=applied.number if applied else None,
            made_ms=host_ms(),
            revert=revert,
            kind=kind,
        )
        if owner is not None and owner.held:
            made.warnings.append(f"an apply is under way: {owner}")
        return Proposal(made, document, files, revert, live)

    def drift(self) -> list[Drift]:
        """Where the live server is not what was applied."""
        applied = self.current()
        if applied is None:
            return []
        cut, _ = self.standing()
        live = read_live(self.server, self.ledger, applied.document, applied.document, self.env, cut)
        return drift_of(applied.document, live, self.env)

    def apply(
        self, proposal: Proposal, *, allow_loss: bool = False, why: str = "", watch: doing.Watch | None = None
    ) -> doing.Applied:
        """Does what was proposed. Raises RefusedError, StaleError, LockedError, LockLostError."""

        def again() -> Plan:
            noted = proposal.live.unmatched_optional
            kind, files, names = proposal.plan.kind, proposal.files, proposal.revert
            moments = saved.moments(saved.facts_of(proposal.plan))
            return self._proposal(proposal.document, kind, files, names, noted, locked=True, as_of=moments).plan

        return doing.apply(
            self.server,
            self.ledger,
            proposal.plan,
            proposal.document,
            again,
            files=proposal.files,
            allow_loss=allow_loss,
            why=why,
            **({"watch": watch} if watch is not None else {}),
        )

    def save(self, proposal: Proposal, path: Path) -> None:
        """Keeps the proposal in a file."""
        made = proposal.plan
        saved.save(
            path,
            saved.Saved(
                made.kind,
                made.base,
                proposal.document,
                proposal.files,
                saved.facts_of(made),
                as_json(made),
                self.where,
                self.ledger.state,
                revert=proposal.revert,
            ),
        )

    def load(self, path: Path, loaded: Loaded) -> Proposal:
        """A saved plan as a proposal, checked against the world as it is. Raises StaleError with what moved."""
        kept = saved.read(path)
        if kept.kind != "apply":
            raise BadInputError(f"a saved plan of kind '{kept.kind}'", where=str(path), fix="plan again")
        now = self.propose(loaded, kept.revert, as_of=saved.moments(kept.facts))
        saved.compare(kept, now.plan, now.document, now.files, self.ledger.state)
        return now


def require_set(loaded: Loaded) -> None:
    """Raises ConfigError, every one of them, for variables that are not set and have no default, or that give no URL
    where one is wanted."""
    faults = unset_references(loaded.tree, loaded.env) or Wiring.of(loaded).faults()
    if faults:
        raise combine(faults)


def _near(selector: str, known: set[str]) -> str:
    head = selector.split("*")[0].split("?")[0].rstrip("-_.")
    near = sorted(name for name in known if head and name.startswith(head[:3]))[:3]
    return f"there are {', '.join(near)}; or " if near else ""


@contextlib.contextmanager
def session(wiring: Wiring, verb: str) -> Iterator[Session]:
    """An open session. Raises ConfigError before anything is connected to, then what server and ledger raise."""
    url = wiring.state_url
    with wiring.connect(verb) as server, open_ledger(url) as ledger:
        yield Session(server, ledger, wiring)
