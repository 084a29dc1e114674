"""An obliterate takes flow parents along that stand in no set, since their children are in other queues."""

from __future__ import annotations

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.declared import OBLITERATE, ObliteratePolicy
from emq_ops.passes.acts.lives import order_of, run_act
from emq_ops.passes.acts.options import ActOptions
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control, flows, reads, repeat
from emq_ops.protocol.transitions.flows import FlowJob
from emq_ops.protocol.transitions.reads import JobState
from tests.support.keyspace import dump


def test_they_go_and_their_own_parents_hear_of_it(server: Server, ledger: Ledger) -> None:
    orders, mail = Queue(server, "orders"), Queue(server, "mail")
    inner = FlowJob(ids.mint(), b"i", "mail", children=(FlowJob(ids.mint(), b"l", "orders"),))
    root = FlowJob(ids.mint(), b"r", children=(inner,))
    flows.add(orders, root)
    repeat.replace_cron(mail, "nightly", "0 3 * * *", "UTC", b"n")
    control.pause_queue(mail)
    report = run_act(server, ledger, OBLITERATE, order_of("mail", ObliteratePolicy(), ActOptions()), ActOptions())
    assert report.counts()["jobs"] == 1  # type: ignore[attr-defined]
    left = {key for key in dump(server) if "{mail}" in key}
    assert left == {mail.keys.outbox}
    flows.deliver(mail)
    assert reads.job_state(orders, root.job) is JobState.DEAD
