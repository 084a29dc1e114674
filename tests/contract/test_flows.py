"""Flows whose queues lie in different slots of a Cluster: added, settled, delivered, looked at, mended."""

from __future__ import annotations

from emq_ops.audit.doctor import examine, mend
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.flows import flow_of
from emq_ops.passes.frame.order import Order
from emq_ops.passes.promote.declared import PROMOTE, PromotePolicy
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.slots import slot
from emq_ops.protocol.transitions import claims, flows, jobs, reads, repeat, settle
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy
from emq_ops.protocol.transitions.reads import JobState
from tests.support.passing import leading, run_by

QUEUES = ("orders", "mail", "render")


def pump(server: Server, ledger: Ledger, queue: str) -> int:
    """The pass, as a daemon runs it; how many signals it delivered."""
    with leading(server, ledger, queue) as fence:
        return int(run_by(PROMOTE, server, Order(queue, PromotePolicy()), ledger, fence).delivered)


def test_over_three_slots(on_cluster: Server, ledger: Ledger) -> None:
    server = on_cluster
    orders, mail, render = (Queue(server, name) for name in QUEUES)
    assert len({slot(q.keys.base) for q in (orders, mail, render)}) == 3
    leaf = FlowJob(ids.mint(), b"l", "render")
    inner = FlowJob(ids.mint(), b"i", "mail", ParentPolicy.IGNORE, (leaf,))
    gone = FlowJob(ids.mint(), b"g", "mail", ParentPolicy.IGNORE)
    root = FlowJob(ids.mint(), b"r", children=(inner, gone, FlowJob(ids.mint(), b"c")))
    assert flows.add(orders, root)
    assert not flows.add(orders, root)
    [claim] = claims.claim_batch(orders, 60_000, 1)
    settle.complete(orders, claim.job, claim.token, result=b"here")
    jobs.remove(mail, gone.job)
    [claim] = claims.claim_batch(render, 60_000, 1)
    settle.retry(render, claim.job, claim.token, settle.Failure(b"boom", 0, 1))
    tree = flow_of(server, "render", leaf.job)
    assert tree is not None
    assert (tree.root.job, {child.queue for child in tree.root.children}) == (root.job, {"orders", "mail"})
    assert [pump(server, ledger, name) for name in ("render", "mail")] == [1, 2]  # a death goes up by two outboxes
    assert reads.job_state(mail, inner.job) is JobState.DEAD
    assert reads.job_state(orders, root.job) is JobState.PENDING
    assert flows.ignored_failures(orders, root.job) == {inner.job: b"boom", gone.job: b"removed"}
    assert flows.children_values(orders, root.job) == {root.children[2].job: b"here"}


def test_a_repeatable_fires_and_a_lost_child_is_mended(on_cluster: Server, ledger: Ledger) -> None:
    server = on_cluster
    orders, mail = Queue(server, "orders"), Queue(server, "mail")
    repeat.replace(mail, "tick", 60_000, b"t", lane="GRP0SSBKAh61tG")
    pump(server, ledger, "mail")
    assert server.read("ZCARD", mail.keys.lane("GRP0SSBKAh61tG")) == 1
    root = FlowJob(ids.mint(), b"r", children=(FlowJob(ids.mint(), b"c", "mail"),))
    flows.add(orders, root)
    server.write("ZREM", mail.keys.pending, root.children[0].job)
    server.write("UNLINK", mail.keys.row(root.children[0].job))
    [finding] = examine(server, ["orders"], settle=0).findings
    assert [one.outcome for one in mend(server, [finding])] == ["mended"]
    assert reads.job_state(orders, root.job) is JobState.DEAD
