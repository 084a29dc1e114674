"""The burst guard: how many jobs a sweep would dead-letter, before it dead-letters the first."""

from __future__ import annotations

import math

from emq_ops.passes.frame.context import Context
from emq_ops.passes.observe.evidence import JudgingContext, LapsedLease
from emq_ops.passes.observe.rows import number_of, token_of
from emq_ops.passes.sweep.slices import judge_all
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms

_PAGE = 1000


def bound(policy: StalledPolicy, active: int) -> int | None:
    """The most deaths that the policy allows one pass with `active` jobs in flight, None for any number."""
    bounds = [] if policy.max_removals is None else [policy.max_removals]
    if policy.max_share is not None:
        bounds.append(math.floor(policy.max_share * active))
    return min(bounds, default=None)


def would_die(context: Context, judging: JudgingContext, *, judged: bool) -> int:
    """How many of the leases that are due would be dead-lettered. Changes nothing. `judged`: whether exemptions
    apply."""
    server, policy, now_ms = context.server, context.policy, context.seen.now_ms
    keys, dying, seen = keys_of(context.queue), 0, 0
    while True:
        flat = server.read("ZRANGEBYSCORE", keys.active, "-inf", now_ms, "WITHSCORES", "LIMIT", seen, _PAGE)
        due = [(m.decode("ascii"), score_ms(s)) for m, s in zip(flat[::2], flat[1::2], strict=True) if is_valid(m)]
        seen += len(flat) // 2
        rows = server.read_many([("HMGET", keys.row(j), "stalled", "attempts", "lease_epoch") for j, _ in due])
        spent = server.read_many([("HGET", keys.exempt, job) for job, _ in due])
        leases = [
            LapsedLease(job, deadline, token_of(row[1]), (row[2] or b"").decode("utf-8", "replace"))
            for (job, deadline), row in zip(due, rows, strict=True)
        ]
        with context.ledger.read() as connection:
            verdicts = judge_all(connection, judging, leases) if judged else {}
        for lease, row, exemptions in zip(leases, rows, spent, strict=True):
            exempt = judged and verdicts[lease.job].exempt and number_of(exemptions, 0) < policy.max_exempt
            dying += not exempt and number_of(row[0], 0) + 1 >= policy.max_stalled
        if len(flat) < 2 * _PAGE:
            return dying
