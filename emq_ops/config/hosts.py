"""The hosts that a config names, before any reference is resolved."""

from __future__ import annotations

from emq_ops.config.wiring import Wiring
from emq_ops.syntax.errors import SourceError


def strange_hosts(wiring: Wiring) -> list[SourceError]:
    """The hosts that stand in the URLs of server, state and archive and may not be asked, of each URL the first. No
    reference is resolved."""
    archive = wiring.archive or {}
    remote = archive.get("remote") or {}
    urls = {
        "server.url": wiring.server.get("url"),
        "state.url": wiring.state.get("url"),
        "archive.local": archive.get("local"),
        "archive.remote.url": remote.get("url"),
        "archive.remote.endpoint": remote.get("endpoint"),
    }
    found: list[SourceError] = []
    for path, url in urls.items():
        try:
            wiring.confined(path, str(url or ""))
        except SourceError as fault:
            found.append(fault)
    return found
