"""Killing a process at every effect that it has: requests by a proxy, what no proxy sees by itself (`Effects`).

Between two effects nothing is kept: before one is after whichever came before it, and a read leaves what it found, as
does an fsync, since what the kernel has outlives a SIGKILL. So the moments that differ are those after each effect that
changes something, and before the first (`make test`). The soak (`WHOLE`) kills before and after each of all of them.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.proxy import Match, Proxy, anything, writes
from tests.support.zygote import Child, Zygote

Moment = tuple[str, str, int]
"""A kind of effect, ``before`` or ``after`` it, and the how manieth of its kind."""
REQUESTS: dict[str, Match] = {"write": writes, "request": anything}
"""Kinds that a proxy before Valkey counts."""
WHOLE = pytest.mark.parametrize(
    "whole", [pytest.param(False, id="once"), pytest.param(True, id="whole", marks=pytest.mark.soak(minutes=1))]
)


def moments(counts: Mapping[str, int], valkey: Proxy | None = None, *, whole: bool = False) -> list[Moment]:
    """The moments at which a process is killed that has so many effects of each kind, and the requests that `valkey`
    counted."""
    kind = "request" if whole else "write"
    asked = {kind: valkey.count(REQUESTS[kind])} if valkey is not None else {}
    return [
        (kind, when, at)
        for kind, count in {**counts, **asked}.items()
        if whole or kind != "sync"
        for at in range(1, count + 1)
        for when in ("before", "after")
        if whole or when == "after" or at == 1
    ]


def kill_at(
    moment: Moment, zygote: Zygote, module: str, proxies: Mapping[str, Proxy], match: Match | None = None, **spec: Any
) -> Child:
    """A child that ended, by SIGKILL at that moment or because it came to its end before it. `proxies`: who kills at
    which kind of request; that of ``request`` at those of REQUESTS, unless `match` says at which."""
    kind, when, at = moment
    proxy = proxies.get("request" if kind in REQUESTS else kind)
    if proxy is not None:
        proxy.arm(f"kill_{when}", at=at, match=match or REQUESTS.get(kind, anything), pid=zygote.pid)
    child = zygote.start(module, kill=moment, **spec)
    code = child.wait()
    if proxy is not None:
        proxy.disarm()
    assert code in (0, -signal.SIGKILL), (moment, child.result())
    return child
