"""Passes and acts under which flow children die or go: their parents hear of it in the same step."""

from __future__ import annotations

from collections.abc import Callable

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
from emq_ops.protocol.transitions import claims, flows, reads, settle
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy
from emq_ops.protocol.transitions.reads import JobState
from tests.passes.shelf import Shelf
from tests.support.passing import dead_of, lapse, swept, take, trimmed


def swept_dead(server: Server, ledger: Ledger, mail: Queue) -> None:
    take(mail)
    lapse(mail)
    assert swept(server, ledger, "mail", max_stalled=1, restart="count").dead == 1


def drained(server: Server, ledger: Ledger, mail: Queue) -> None:
    found = WaitingSet(server, "mail", WaitingSelection((WAITING,))).targets()
    assert act(server, acts.DRAIN, found, ledger).done == 1


def died_untold(server: Server, mail: Queue) -> str:
    """A child that a sweep of the reference took: nobody told its parent."""
    [claim] = claims.claim_batch(mail, 60_000, 1)
    server.write("ZREM", mail.keys.active, claim.job)
    server.write("ZADD", mail.keys.dead, 0, claim.job)
    server.write("HSET", mail.keys.row(claim.job), "state", "dead", "last_error", "stalled")
    return claim.job


def removed(server: Server, ledger: Ledger, mail: Queue) -> None:
    died_untold(server, mail)
    assert act(server, acts.REMOVE, choose(server, "mail", DeadSelection()), ledger).done == 1


def trimmed_away(server: Server, ledger: Ledger, mail: Queue) -> None:
    job = died_untold(server, mail)
    shelf = Shelf(server, "mail")
    assert trimmed(server, ledger, keep=0, archive=True, archiver=shelf).removed_jobs == [job]
    assert dict(zip(shelf.rows[job][::2], shelf.rows[job][1::2], strict=True))[b"parent_policy"]  # the record keeps it


WAYS = [swept_dead, drained, removed, trimmed_away]


@pytest.mark.parametrize("policy", list(ParentPolicy))
@pytest.mark.parametrize("home", ["mail", "orders"])
@pytest.mark.parametrize("way", WAYS)
def test_the_parent_hears(
    server: Server,
    ledger: Ledger,
    mail: Queue,
    way: Callable[[Server, Ledger, Queue], None],
    home: str,
    policy: ParentPolicy,
) -> None:
    parents = Queue(server, home)
    child = FlowJob(ids.mint(), b"c", "mail", policy)
    root = FlowJob(ids.mint(), b"r", children=(child,))
    flows.add(parents, root)
    way(server, ledger, mail)
    assert flows.deliver(mail).delivered == (home == "orders")
    fails = policy is ParentPolicy.FAIL
    assert reads.job_state(parents, root.job) is (JobState.DEAD if fails else JobState.PENDING)
    book = parents.keys.book(root.job, "failed" if fails else "unsuccessful")
    assert [key.decode() for key in server.read("HKEYS", book)] == [child.job]


def test_a_child_and_the_parent_that_it_took_along_are_trimmed_whole(
    server: Server, ledger: Ledger, mail: Queue
) -> None:
    root = FlowJob(ids.mint(), b"r", children=(FlowJob(ids.mint(), b"c"), FlowJob(ids.mint(), b"d")))
    flows.add(mail, root)
    for claim in claims.claim_batch(mail, 60_000, 2):
        settle.retry(mail, claim.job, claim.token, settle.Failure(b"boom", 0, 1))
    assert len(dead_of(mail)) == 3
    assert trimmed(server, ledger, keep=0).removed == 3
    assert not [key for key in server.scan() if key.startswith(mail.keys.base.encode() + b"job:")]
