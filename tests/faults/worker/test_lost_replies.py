"""The connection fails at every request of a worker in turn: each job still ends once, with one record."""

from __future__ import annotations

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import enqueue, reads
from emq_ops.worker import Backoff, Consumer, ConsumerSettings
from tests.support.consuming import Told, eventually, records
from tests.support.handlers import obedient
from tests.support.invariants import violations
from tests.support.proxy import RespProxy, scripted
from tests.support.valkey import Valkey

FINAL = {"ok": "completed", "flaky": "completed", "fail": "dead", "cancel": "cancelled"}
WORK = ("claim", "claim_lane", "complete", "complete_many", "retry", "promote", "reap")


def fill(q: Queue) -> dict[str, str]:
    q.server.write("FLUSHALL")
    wanted = {}
    for n, word in enumerate(FINAL):
        job = ids.mint()
        enqueue.enqueue(q, job, word, group=ids.mint("GRP") if n % 2 else None)
        wanted[job] = word
    return wanted


def all_ended(q: Queue) -> bool:
    counts = reads.counts(q)
    return counts.completed + counts.failed == len(FINAL)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "scripts"),
    [
        ("cut_before", WORK),
        ("cut_after", WORK),
        ("half_reply", ("complete", "complete_many", "retry")),
        ("drop_reply", ("complete", "complete_many", "retry")),
    ],
)
def test_at_every_request(valkey: Valkey, server: Server, kind: str, scripts: tuple[str, ...]) -> None:
    q = Queue(server, "orders")
    k = 0
    while True:
        k += 1
        wanted = fill(q)
        told = Told()
        with RespProxy(valkey.url) as proxy, connect(f"{proxy.url}?socket_timeout=0.1") as ours:
            fault = proxy.arm(kind, at=k, match=scripted(*scripts))
            # Room for more attempts than the scenario needs: a claim whose reply is lost costs one, and on a slow
            # machine any may lapse.
            options = {"max_attempts": 4, "backoff": Backoff(base=0, longest=0), "concurrency": 2, "lease": 400}
            with Consumer(
                Queue(ours, q.name), obedient, ConsumerSettings(beat=20, cancel=False, **options), on_event=told
            ):  # type: ignore[arg-type]  # of many types
                eventually(lambda: all_ended(q), f"all ended, with {kind} at {k}")
        assert violations(q.server, q.name) == []
        found = [(fields[b"job"].decode(), fields[b"outcome"].decode()) for fields in records(q)]
        assert sorted(found) == sorted((job, FINAL[word]) for job, word in wanted.items())
        counts = reads.counts(q)
        assert (counts.completed, counts.failed, counts.dead) == (3, 1, 1)
        if not fault.fired:
            break
    assert k > len(scripts)


def test_a_settlement_waits_out_an_outage_and_happens_once(valkey: Valkey, server: Server) -> None:
    q = Queue(server, "orders")
    told = Told()
    with RespProxy(valkey.url) as proxy, connect(proxy.url) as ours:
        fault = proxy.arm("cut_after", match=scripted("complete", "retry"), times=4)
        wanted = fill(q)
        with Consumer(
            Queue(ours, q.name), obedient, ConsumerSettings(max_attempts=1, beat=20), concurrency=1, on_event=told
        ):
            fault.wait()
            proxy.down()
            eventually(lambda: [d for d, _ in told.troubles() if d.startswith("settle ")][1:], "it keeps trying")
            proxy.up()
            eventually(lambda: all_ended(q), "all ended")
    assert {job: outcomes for job, outcomes in told.outcomes().items() if len(outcomes) != 1} == {}
    assert sorted(fields[b"job"].decode() for fields in records(q)) == sorted(wanted)
    assert reads.counts(q).failed == 2  # "flaky" too, at its only attempt


def test_a_settlement_that_is_refused_is_tried_again_until_somebody_mends_it(server: Server) -> None:
    q = Queue(server, "orders")
    job, told = ids.mint(), Told()
    enqueue.enqueue(q, job, b"ok")
    q.server.write("SET", q.keys.stream("completions"), "in the way")
    with Consumer(q, obedient, ConsumerSettings(beat=20, lease=1_000), on_event=told) as consumer:
        [(task, error)] = eventually(told.troubles, "told")
        assert task == f"settle {job}"
        assert "not a stream" in error
        assert consumer.in_hand == [job]
        q.server.write("UNLINK", q.keys.stream("completions"))
        eventually(lambda: told.outcomes() == {job: ["completed"]}, "settled")
    assert len(records(q)) == 1
