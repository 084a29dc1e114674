"""Killing a process at every effect that it has: requests by a proxy, what no proxy sees by itself (`Effects`)."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from tests.support.proxy import Match, Proxy, anything
from tests.support.zygote import Child, Zygote

Moment = tuple[str, str, int]
"""A kind of effect, ``before`` or ``after`` it, and the how manieth of its kind."""


def moments(counts: Mapping[str, int]) -> list[Moment]:
    """Every moment at which a process that has so many effects of each kind can be killed."""
    return [
        (kind, when, at) for kind, count in counts.items() for at in range(1, count + 1) for when in ("before", "after")
    ]


def kill_at(
    moment: Moment, zygote: Zygote, module: str, proxies: Mapping[str, Proxy], match: Match = anything, **spec: Any
) -> Child:
    """A child that ended, by SIGKILL at that moment or because it came to its end before it. `proxies`: who kills at
    which kind of request."""
    kind, when, at = moment
    proxy = proxies.get(kind)
    if proxy is not None:
        proxy.arm(f"kill_{when}", at=at, match=match, pid=zygote.pid)
    child = zygote.start(module, kill=moment, **spec)
    code = child.wait()
    if proxy is not None:
        proxy.disarm()
    assert code in (0, -signal.SIGKILL), (moment, child.result())
    return child
