"""Planning and applying as calls: a config or a revision in, a plan or a new revision out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from emq_ops.config.effective import Layers
from emq_ops.config.explain import combine
from emq_ops.config.hosts import strange_alerts
from emq_ops.config.loader import Loaded, unset_references
from emq_ops.config.wiring import Wiring
from emq_ops.deploy import last_applied, saved
from emq_ops.deploy.apply import Applied, Watch, apply
from emq_ops.deploy.document import Document
from emq_ops.deploy.live import Unread, read_live, tell_unread
from emq_ops.deploy.model import Drift, Interrupted, LiveServer, Plan, Proposal
from emq_ops.deploy.plan_options import PlanOptions
from emq_ops.deploy.planner import plan
from emq_ops.deploy.rules import broken, rules_of
from emq_ops.deploy.store import journal, revisions
from emq_ops.deploy.store.lock import Owner, owner_of
from emq_ops.deploy.store.revisions import Revision
from emq_ops.deploy.targets import targeted
from emq_ops.deploy.variables import Digests
from emq_ops.ledger.ledger import Ledger, host_ms, secret_key
from emq_ops.ledger.ownership import states_of
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server
from emq_ops.syntax.errors import SourceError


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a plan is made for; as in `Proposal`."""

    kind: str
    revert: tuple[str, ...] = ()
    unmatched: list[str] = field(default_factory=list)
    target: tuple[str, ...] = ()


class Deployment:
    """A server and the state that owns its queues. `env`: where references are looked up; `made`: whether the state is
    there: to look at a plan makes none; `unread`: what our archive knows of a stream, where it is at hand."""

    def __init__(self, server: Server, ledger: Ledger, wiring: Wiring, *, made: bool = True) -> None:
        self.server, self.ledger, self.env = server, ledger, wiring.env
        self.where = server.where
        self.made = made
        self.unread: Unread | None = None
        self._current: Revision | None = None

    @cached_property
    def digests(self) -> Digests:
        """Digests with the key of this state."""
        return Digests(secret_key(self.ledger, "digests"))

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

    def desired(self, loaded: Loaded) -> tuple[Document, list[str]]:
        """What the config wants on this server, and its globs that take no queue yet. Raises SourceError for one that
        should take one."""
        layers = Layers(loaded)
        layers.check()
        applied = self.current()
        known = set(applied.document.queues) if applied else set()
        if layers.patterns:
            known.update(self.server.queues())
        queues = layers.queues(known)
        for selector in layers.unmatched(queues):
            raise SourceError(
                f"the glob '{selector}' takes no queue",
                layers.mark(selector),
                path=f"queues.{selector}",
                fix=_near(selector, known) + "`optional: true` in it, if that is right",
            )
        document = self.digests.noted(Document.of(loaded, layers, queues), self.env)
        return document, [s for s in layers.patterns if not layers.takes_any(s, queues)]

    def propose(
        self,
        loaded: Loaded,
        revert: Sequence[str] = (),
        *,
        target: Sequence[str] = (),
        rules: Iterable[Path] = (),
        as_of: Mapping[str, int] | None = None,
        store: str = "",
    ) -> Proposal:
        """The plan from what is in force, and live, to `loaded`. `target`: queues or globs, and nothing else of the
        file; `rules`: files of plan rules, beside the config's own; `store`: what the object store holds of the streams
        archived so far, in words. Raises SourceError where a variable is not set or a rule can't be told."""
        require_set(loaded)
        kept = rules_of(loaded, rules)
        document, unmatched = self.desired(loaded)
        if target:
            current = self.current()
            document = targeted(document, current.document if current else None, target)
        files = [{"path": str(source.path), "sha256": source.sha256} for source in loaded.sources]
        asked = _Asked("apply", tuple(revert), unmatched, tuple(target))
        made = self._plan(document, asked, as_of=as_of)
        made.refusals += broken(kept, document, self.env)
        for step in made.steps:
            if step.moves and store:
                step.notes.append(store)
        return Proposal(made, document, files, tuple(revert), unmatched, tuple(target))

    def propose_document(self, document: Document, kind: str) -> Proposal:
        """The plan to a given document: that of an earlier revision (``rollback``), or an empty one (``destroy``)."""
        document = self.digests.noted(document, self.env)
        return Proposal(self._plan(document, _Asked(kind)), document)

    def _plan(
        self,
        document: Document,
        asked: _Asked,
        *,
        locked: bool = False,
        as_of: Mapping[str, int] | None = None,
    ) -> Plan:
        """`locked`: the lock is ours, so that an apply that did not end did end. `as_of`: see `read_live`."""
        applied = self.current()
        owner: Owner | None = None
        if locked:
            with self.ledger.read() as connection:
                cut = journal.interrupted(connection)
        else:
            cut, owner = self.standing()
        before = self.digests.as_applied(applied.document, self.env) if applied else None
        live = read_live(self.server, self.ledger, document, before, self.env, cut, as_of)
        self._judge_loss(live, applied)
        if self.unread is not None:
            tell_unread(live, self.unread)
        live.unmatched_optional = asked.unmatched
        only = None
        if asked.target:
            only = frozenset(name for selector in asked.target for name in globs.select(selector, document.queues))
        options = PlanOptions(self.env, asked.revert, asked.kind, only=only, digests=self.digests)
        made = plan(document, before, live, options)
        made.base, made.made_ms = applied.number if applied else None, host_ms()
        made.notes = {queue: facts.note for queue, facts in live.queues.items()}
        if owner is not None and owner.held:
            made.warnings.append(f"an apply is under way: {owner}")
        return made

    def _judge_loss(self, live: LiveServer, applied: Revision | None) -> None:
        def earlier(number: int) -> Document | None:
            try:
                return revisions.revision(self.ledger, number).document
            except BadInputError:
                return None

        if applied is not None:
            last_applied.judge(live, applied.document, applied.number, states_of(self.ledger), earlier)

    def drift(self, only: Collection[str] | None = None) -> list[Drift]:
        """Where the live server is not what was applied; `only`: of these queues."""
        applied = self.current()
        if applied is None:
            return []
        cut, _ = self.standing()
        document = self.digests.as_applied(applied.document, self.env)
        if only is not None:
            some = {queue: entry for queue, entry in document.queues.items() if queue in only}
            document = Document({**document.data, "queues": some})
        live = read_live(self.server, self.ledger, document, document, self.env, cut)
        self._judge_loss(live, applied)
        return _drift_of(document, live, PlanOptions(self.env, digests=self.digests))

    def apply(
        self, proposal: Proposal, *, allow_loss: bool = False, why: str = "", watch: Watch | None = None
    ) -> Applied:
        """Does what was proposed. Raises PlanRefusedError, StaleError, LockedError, LockLostError."""

        def again() -> Plan:
            shown = proposal.plan
            moments = saved.moments(saved.facts_of(shown))
            asked = _Asked(shown.kind, proposal.revert, proposal.unmatched, proposal.target)
            return self._plan(proposal.document, asked, locked=True, as_of=moments)

        return apply(self.server, self.ledger, proposal, again, allow_loss=allow_loss, why=why, watch=watch)

    def save(self, proposal: Proposal, path: Path, key: bytes | None = None) -> None:
        """Keeps the proposal in a file, signed where there is a `key`."""
        state = self.ledger.state if self.made else ""
        saved.save(path, proposal, server=self.where, state=state, key=key)

    def load(self, path: Path, loaded: Loaded) -> Proposal:
        """A saved plan as a proposal, checked against the world as it is. Raises StaleError with what moved."""
        kept = saved.read(path, saved.key_of(loaded))
        if kept.kind != "apply":
            raise BadInputError(f"a saved plan of kind '{kept.kind}'", where=str(path), fix="plan again")
        now = self.propose(loaded, kept.revert, target=kept.target, as_of=saved.moments(kept.facts))
        saved.compare(kept, now, self.ledger.state)
        return now


def require_set(loaded: Loaded) -> None:
    """Raises SourceError, every one of them, for variables that are not set and have no default, that give no URL
    where one is wanted, or a host that may not be asked."""
    faults = unset_references(loaded.tree, loaded.env) or [*Wiring.of(loaded).faults(), *strange_alerts(loaded)]
    if faults:
        raise combine(faults)


def _near(selector: str, known: set[str]) -> str:
    head = selector.split("*")[0].split("?")[0].rstrip("-_.")
    near = sorted(name for name in known if head and name.startswith(head[:3]))[:3]
    return f"there are {', '.join(near)}; or " if near else ""


def _drift_of(applied: Document, live: LiveServer, options: PlanOptions) -> list[Drift]:
    """Where the live server is not what was applied (with `Past` where a variable changed)."""
    made = plan(applied, applied, live, options)
    lost = [
        Drift(step.address, step.queue or "", step.write.setting, step.write.value, step.write.expect, lost=True)
        for step in made.steps
        if step.op == "restore" and step.write is not None
    ]
    return sorted([*made.drift, *lost], key=lambda drift: drift.address)
