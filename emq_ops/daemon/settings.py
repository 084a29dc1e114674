"""What a daemon takes from a revision besides its tasks: resolved whole, before anything of it is taken over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emq_ops.config.models import DaemonSection, HeartbeatSection, StateSection, WindowSection
from emq_ops.config.policies import checked
from emq_ops.config.windows import sections_of
from emq_ops.daemon.alert_rules import AlertRule
from emq_ops.daemon.rules import rules_of
from emq_ops.deploy.document import Document
from emq_ops.policy.options import written

_AT_START = ("threads", "archive_threads", "lease", "ready_file")
"""DaemonSection of the daemon that it takes when it starts; the others it follows."""


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """`maintenance`: the config's windows; `retain_ms`: how long runs and deaths are remembered; `rules`: of alerts;
    `heartbeat`: with references as written."""

    settings: DaemonSection
    maintenance: tuple[WindowSection, ...]
    retain_ms: int
    rules: tuple[AlertRule, ...] = ()
    heartbeat: HeartbeatSection | None = None


def settings_of(document: Document, env: Mapping[str, str]) -> DaemonSettings:
    """Raises BadInputError where a reference can't be resolved in `env`."""
    settings = checked(DaemonSection, document.globals.get("daemon") or {}, env, "daemon")
    state: StateSection = checked(StateSection, document.globals.get("state") or {}, env, "state")
    said = document.globals.get("heartbeat")
    heartbeat = checked(HeartbeatSection, said, env, "heartbeat") if said else None
    windows = sections_of(document.data["config"], env)
    return DaemonSettings(settings, windows, state.retain, tuple(rules_of(document, env)), heartbeat)


def at_next_start(before: Document, after: Document) -> list[str]:
    """What differs between what a daemon started with and what is in force, and takes a restart to be taken over: a
    daemon stays on its server, and listens where it listens. Nothing where everything was taken away."""
    if not after.globals:
        return []
    changed = [name for name in ("server", "http") if before.globals.get(name) != after.globals.get(name)]
    old, new = before.globals.get("daemon") or {}, after.globals.get("daemon") or {}
    return changed + [f"daemon.{name}" for name in _AT_START if _said(old, name) != _said(new, name)]


def _said(section: Mapping[str, object], name: str) -> object:
    usual: object = written(DaemonSection())[name]
    return section.get(name, usual)
