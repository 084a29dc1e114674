"""Renewing leases: many of one node in one call, where its topology lets them."""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.protocol.errors import EmqError, ServerError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server, reply_error

TOGETHER = 50
"""So many leases are renewed in one step: some milliseconds of the server's time."""


def renew(server: Server, fences: Sequence[Fence], lease_ms: int, count: int | str = "") -> list[EmqError | None]:
    """Renews leases for `lease_ms`; returns of each None, or why it was not. `count`: of our database's life."""
    size = TOGETHER if server.single else 1  # a call has the keys of one slot
    groups = [fences[first : first + size] for first in range(0, len(fences), size)]
    replies = server.run_many(load("lease_renew"), [_call(group, lease_ms, count) for group in groups])
    found: list[EmqError | None] = []
    for group, reply in zip(groups, replies, strict=True):
        if isinstance(reply, ServerError) and len(group) > 1:
            # A right that is missing for one of its keys refuses a call whole.
            for one in group:
                found += _told(server, [one], server.run_many(load("lease_renew"), [_call([one], lease_ms, count)])[0])
        else:
            found += _told(server, group, reply)
    return found


def _call(fences: Sequence[Fence], lease_ms: int, count: int | str) -> tuple[list[str], list[Arg]]:
    args: list[Arg] = [lease_ms, count]
    for fence in fences:
        args += fence.args
    return [fence.key for fence in fences], args


def _told(server: Server, fences: Sequence[Fence], reply: list[bytes] | EmqError) -> list[EmqError | None]:
    if isinstance(reply, EmqError):
        return [reply] * len(fences)
    return [reply_error(text.decode("utf-8", "replace"), server.where) if text else None for text in reply]
