"""The tree of a flow, from whichever of its jobs it is asked for."""

from __future__ import annotations

from emq_ops.overview.flows import flow_of
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, flows, settle
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy


def test_parents_children_and_how_they_stand(server: Server) -> None:
    orders, mail = Queue(server, "orders"), Queue(server, "mail")
    first, dies = FlowJob(ids.mint(), b"1"), FlowJob(ids.mint(), b"2", "mail", ParentPolicy.IGNORE)
    leaf = FlowJob(ids.mint(), b"l", "mail")
    inner = FlowJob(ids.mint(), b"i", children=(leaf,))
    root = FlowJob(ids.mint(), b"r", children=(first, dies, inner))
    flows.add(orders, root)
    [claim] = claims.claim_batch(orders, 60_000, 1)
    settle.complete(orders, claim.job, claim.token, result=b"fine")
    [claim] = claims.claim_batch(mail, 60_000, 1)
    settle.retry(mail, dies.job, claim.token, settle.Failure(b"boom", 0, 1))
    flows.deliver(mail)
    for job, queue in ((leaf.job, "mail"), (root.job, "orders"), (inner.job, "orders")):
        found = flow_of(server, queue, job)
        assert found is not None
        assert (found.job, found.root.job, found.root.state, found.root.waits) == (
            job,
            root.job,
            "awaiting_children",
            1,
        )
        seen = {(c.job, c.queue, c.state, c.policy, c.ended, c.detail) for c in found.root.children}
        assert seen == {
            (first.job, "orders", "gone", "", "completed", b"fine"),
            (dies.job, "mail", "dead", "ignore", "ignored", b"boom"),
            (inner.job, "orders", "awaiting_children", "fail", "", None),
        }
        [middle] = [child for child in found.root.children if child.job == inner.job]
        assert [(one.job, one.queue, one.state) for one in middle.children] == [(leaf.job, "mail", "pending")]
        assert found.whole
        assert found.root.as_row()["children"][0]["state"] in ("gone", "dead", "awaiting_children")


def test_a_large_flow_is_cut_and_says_so(server: Server) -> None:
    orders, plain = Queue(server, "orders"), ids.mint()
    root = FlowJob(ids.mint(), b"r", children=tuple(FlowJob(ids.mint(), b"c") for _ in range(30)))
    flows.add(orders, root)
    enqueue.enqueue(orders, plain, b"x")
    found = flow_of(server, "orders", root.job, most=10)
    assert found is not None
    assert (len(found.root.children), found.whole) == (9, False)
    few = flow_of(server, "orders", root.job, keys=5)
    assert few is not None
    assert not few.whole
    assert flow_of(server, "orders", plain) is None
    assert flow_of(server, "orders", ids.mint()) is None
