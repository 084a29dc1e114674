"""The hosts that a config names, of whom some may be asked (``EMQ_OPS_HOST_ALLOW``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emq_ops.config.explain import dotted, locate
from emq_ops.config.loader import Loaded
from emq_ops.config.messenger import messenger_of, places_of
from emq_ops.config.places import resolve_url
from emq_ops.config.wiring import Wiring
from emq_ops.policy.environment import HOST_ALLOW, Environment, resolves, value_of
from emq_ops.policy.references import has_reference, references
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.masking import remember
from emq_ops.syntax.errors import SourceError, shown


def strange_hosts(loaded: Loaded, wiring: Wiring) -> list[SourceError]:
    """What stands in the URLs of server, state, archive and alerts and may not be asked, of each URL the first. No
    reference is resolved."""
    archive = wiring.archive or {}
    remote = archive.get("remote") or {}
    urls = {
        "server.url": wiring.server.get("url"),
        "state.url": wiring.state.get("url"),
        "archive.local": archive.get("local"),
        "archive.remote.url": remote.get("url"),
        "archive.remote.endpoint": remote.get("endpoint"),
        "heartbeat.url": loaded.config.heartbeat and loaded.config.heartbeat.url,
    }
    found: list[SourceError] = []
    for path, url in urls.items():
        try:
            wiring.confined(path, str(url or ""))
        except SourceError as fault:
            found.append(fault)
    return found + strange_alerts(loaded)


def strange_alerts(loaded: Loaded) -> list[SourceError]:
    """The alerts that would go where nothing may be sent. One with a reference is looked at where it is resolved; every
    variable has to be set there."""
    env = loaded.env
    if not isinstance(env, Environment) or env.hosts is None:
        return []
    found: list[SourceError] = []
    for number, alert in enumerate(loaded.config.alerts):
        if has_reference(alert.url) and not resolves(env):
            continue
        path = ("alerts", number, "url")
        try:
            messenger_for(alert.url, env)
        except BadInputError as fault:
            found.append(SourceError(fault.what, locate(loaded.tree, path)[0], path=dotted(path), fix=fault.fix))
    return found


def messenger_for(url: str, env: Mapping[str, str]) -> Any:
    """What sends to `url` (`messenger_of`), its references resolved, or None. Raises BadInputError where nothing may be
    sent there, ReferenceFault."""
    for token in references(url):  # tokens stand anywhere in it
        remember(value_of(env, token.name) or "", token.name)
    resolved = resolve_url(url, env)
    messenger = messenger_of(resolved)
    if messenger is not None and isinstance(env, Environment):
        place = env.strange(places_of(messenger, resolved))
        if place is not None:
            raise BadInputError(
                f"nothing may be sent to {shown(place)}", where="alerts", fix=f"if it may: add it to {HOST_ALLOW}"
            )
    return messenger
