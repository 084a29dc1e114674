"""What takes jobs away gives their deduplication keys back, where the caller said so."""

from __future__ import annotations

import pytest

from emq_ops.ledger import acts
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.acts.waiting import WAITING, WaitingSelection, WaitingSet
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, reads, settle
from emq_ops.protocol.transitions.enqueue import Dedup, NewJob, put
from tests.support.passing import trimmed


@pytest.mark.parametrize("by", ["trim", "remove", "drain"])
def test_a_removal_gives_the_key_back(server: Server, ledger: Ledger, by: str) -> None:
    q = Queue(server, "mail")
    for key, release in (("back", ("removed",)), ("kept", ("completed",))):
        put(q, NewJob(ids.mint(), b"x", dedup=Dedup(key, 60_000, release)))  # type: ignore[arg-type]  # literals
        if by != "drain":
            [claim] = claims.claim_batch(q, 60_000, 1)
            settle.retry(q, claim.job, claim.token, settle.Failure("boom", delay_ms=0, max_attempts=1))
    assert None not in (reads.dedup_owner(q, "back"), reads.dedup_owner(q, "kept"))
    if by == "trim":
        trimmed(server, ledger, keep=0)
        report = trimmed(server, ledger, keep=0)
    elif by == "remove":
        report = act(server, acts.REMOVE, choose(server, "mail", DeadSelection()), ledger)
    else:
        report = act(server, acts.DRAIN, WaitingSet(server, "mail", WaitingSelection((WAITING,))).targets(), ledger)
    assert reads.counts(q).dead == reads.counts(q).pending == 0, report
    assert reads.dedup_owner(q, "back") is None
    assert reads.dedup_owner(q, "kept") is not None
