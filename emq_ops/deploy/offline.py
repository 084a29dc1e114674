"""A plan from the file alone: no reference resolved, nothing asked but a state in a file of this host, and that only
read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from emq_ops.config.effective import Layers
from emq_ops.config.explain import combine
from emq_ops.config.hosts import strange_hosts
from emq_ops.config.loader import Loaded
from emq_ops.config.wiring import Wiring
from emq_ops.database.engine import open_database
from emq_ops.database.profile import file_of, for_reading
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import LiveServer, Plan
from emq_ops.deploy.plan_options import PlanOptions
from emq_ops.deploy.planner import plan
from emq_ops.deploy.rules import broken, rules_of
from emq_ops.deploy.store import revisions
from emq_ops.deploy.store.revisions import Revision
from emq_ops.ledger.ledger import PROFILE, STATE, host_ms
from emq_ops.policy.references import has_reference


@dataclass(frozen=True, slots=True)
class OfflinePlan:
    """`plan`, and in `compared` with what it was compared, in words."""

    plan: Plan
    compared: str


def plan_offline(loaded: Loaded, state: str | None = None, rules: Iterable[Path] = ()) -> OfflinePlan:
    """The plan to `loaded`, which was read with an environment that resolves nothing. `state`: the URL of the state,
    in place of the file's; `rules`: files of plan rules, beside the config's own.

    Raises SourceError: a fault of the file, a host in it that may not be asked; DatabaseError: a state that can't be
    read.
    """
    layers = Layers(loaded)
    layers.check()
    wiring = Wiring.of(loaded).with_urls(server=None, state=state, local=None, remote=None)
    if faults := strange_hosts(loaded, wiring):
        raise combine(faults)
    applied, compared = _in_force(wiring)
    known = set(applied.document.queues) if applied else set()
    document = Document.of(loaded, layers, layers.queues(known))
    options = PlanOptions(loaded.env, offline=True)
    made = plan(document, applied.document if applied else None, LiveServer(), options)
    made.refusals += broken(rules_of(loaded, rules), document, loaded.env)
    made.base, made.made_ms = applied.number if applied else None, host_ms()
    return OfflinePlan(made, compared)


def _in_force(wiring: Wiring) -> tuple[Revision | None, str]:
    """The revision in force where a file of this host tells it, and what the plan is compared with, in words."""
    said = wiring.state["url"]
    if has_reference(said):
        return None, _new("has a reference in its URL")
    url = replace(wiring, state={"url": said}).state_url
    file = file_of(url)
    if file is None:
        return None, _new("is on a server")
    if not os.path.isfile(Path(file).expanduser()):
        return None, _new("is not there yet")
    with open_database(for_reading(url), PROFILE) as database:
        with database.read() as connection:
            # It may be of the branch, too: what a view says has no end, and reading it none.
            if connection.exec_driver_sql(
                "SELECT 1 FROM sqlite_master WHERE type <> 'table' AND type <> 'index'"
            ).first():
                return None, _new("has views or triggers, which no state has")
            schema = STATE.current(connection)
        if schema != STATE.head:
            return None, _new(f"has schema {schema or 'none'}, and this version reads {STATE.head}")
        found = revisions.current(database)
    if found is None:
        return None, _new("has no revision yet")
    return found, f"compared with revision {found.number}"


def _new(why: str) -> str:
    return f"everything is shown as new, since the state {why}"
