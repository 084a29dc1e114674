"""Cancellation: the four answers of a request, and what a worker makes of an event."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, KindError, ServerError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import claims, enqueue, flows, jobs, reads, settle
from emq_ops.protocol.transitions.flows import FlowJob
from emq_ops.worker import CancelAnswer, Cancelled, CancelToken, Consumer, ConsumerSettings, Job, JobCancelled, cancel
from emq_ops.worker.events import Signalled
from emq_ops.worker.listener import cancel_event
from tests.support.consuming import Told, eventually, lapse, put, records
from tests.support.invariants import violations
from tests.support.keyspace import dump
from tests.support.proxy import RespProxy, named
from tests.support.valkey import Valkey


@pytest.mark.parametrize("grouped", [False, True])
def test_a_waiting_job_is_removed_outright(q: Queue, grouped: bool) -> None:
    job = put(q, group=ids.mint("GRP") if grouped else None)
    jobs.add_log(q, job, b"a line")
    assert cancel.request(q, job, "why") is CancelAnswer.REMOVED
    assert reads.job_state(q, job) is reads.JobState.ABSENT
    assert [key for key in dump(q.server) if job in key] == []
    assert violations(q.server, q.name) == []
    assert cancel.request(q, job, "why") is CancelAnswer.GONE


def test_a_scheduled_job_is_removed_outright(q: Queue) -> None:
    job = ids.mint()
    enqueue.schedule_in(q, job, b"x", 60_000)
    assert cancel.request(q, job) is CancelAnswer.REMOVED
    assert dump(q.server) == {}


def test_without_a_subscriber_an_active_job_is_signalled_all_the_same(q: Queue) -> None:
    job = put(q)
    assert claims.claim(q, 60_000) is not None
    before = dump(q.server)
    assert cancel.request(q, job, "why") is CancelAnswer.SIGNALLED
    assert cancel.request(q, job, "why") is CancelAnswer.SIGNALLED
    assert dump(q.server) == before


def test_after_its_completion_it_is_gone(q: Queue) -> None:
    job = put(q)
    assert claims.claim(q, 60_000) is not None
    settle.complete(q, job, 1)
    assert cancel.request(q, job) is CancelAnswer.GONE


def test_a_dead_job_and_a_held_flow_parent_are_not_cancellable(q: Queue) -> None:
    job = put(q)
    assert claims.claim(q, 60_000) is not None
    settle.retry(q, job, 1, settle.Failure(b"e", delay_ms=0, max_attempts=1))
    parent = ids.mint()
    q.server.write("HSET", q.keys.row(parent), "state", "awaiting_children", "attempts", "0", "payload", "p")
    before = dump(q.server)
    assert cancel.request(q, job) is CancelAnswer.NOT_CANCELLABLE
    assert cancel.request(q, parent) is CancelAnswer.NOT_CANCELLABLE
    assert dump(q.server) == before


def test_a_waiting_flow_child_goes_and_its_parent_hears_of_it(q: Queue) -> None:
    child = FlowJob(ids.mint(), b"c")
    root = FlowJob(ids.mint(), b"r", children=(child,))
    flows.add(q, root)
    assert cancel.request(q, child.job) is CancelAnswer.REMOVED
    assert reads.job_state(q, root.job) is reads.JobState.DEAD
    assert q.server.read("HGETALL", q.keys.book(root.job, "failed")) == [child.job.encode(), b"cancelled"]


@pytest.mark.parametrize(("job", "error"), [("nonsense", BadInputError), ("GRP0SS8LquJMLE", KindError)])
def test_a_malformed_id_never_reaches_the_server(q: Queue, job: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        cancel.request(q, job)


def test_without_the_right_to_publish_nothing_happens(valkey: Valkey, q: Queue) -> None:
    job = put(q)
    assert claims.claim(q, 60_000) is not None
    with valkey.client() as admin:
        admin.execute_command("ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels")
    before = dump(q.server)
    with connect(f"unix://mute:pw@{valkey.socket}") as mute, pytest.raises(ServerError) as refused:
        cancel.request(Queue(mute, q.name), job)
    assert refused.value.code == "NOPERM"
    assert dump(q.server) == before


class Stubborn:
    """A handler that waits until it is cancelled, or let go; and keeps its jobs."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.go = threading.Event()

    def __call__(self, job: Job) -> Any:
        self.jobs.append(job)
        while not self.go.is_set():
            job.token.raise_if_cancelled()
            job.token.wait(0.005)
        return b"went through"


def test_a_handler_that_stops_completes_its_job_as_cancelled_and_it_is_never_retried(q: Queue) -> None:
    told, handler = Told(), Stubborn()
    one, other = put(q), put(q, group=ids.mint("GRP"))
    with Consumer(q, handler, ConsumerSettings(beat=20), on_event=told):
        eventually(lambda: len(handler.jobs) == 2, "both in hand")
        assert cancel.request(q, one, "no longer wanted — é") is CancelAnswer.SIGNALLED
        cancel.request(q, one, "a second reason")
        eventually(lambda: told.outcomes() == {one: ["cancelled"]}, "one stopped, and only that one")
        assert cancel.request(q, one) is CancelAnswer.GONE
        handler.go.set()
        eventually(lambda: told.outcomes() == {one: ["cancelled"], other: ["completed"]}, "the other went through")
    first, second = records(q)
    assert (first[b"job"].decode(), first[b"outcome"]) == (one, b"cancelled")
    assert first[b"result"].decode() == "cancelled:no longer wanted — é"
    assert (second[b"outcome"], second[b"result"]) == (b"completed", b"went through")
    assert [(event.job, event.reason) for event in told.of(Signalled)] == [(one, "no longer wanted — é")]
    assert reads.counts(q).dead == reads.counts(q).schedule == 0


def test_a_token_belongs_to_one_claim(q: Queue) -> None:
    job = put(q)
    told, first, second = Told(), Stubborn(), Stubborn()
    # The first worker keeps no lease and listens to nobody; the job is taken from it.
    deaf = Consumer(q, first, ConsumerSettings(cancel=False, keep=False, lease=60_000, recovery="none"))
    deaf.start()
    eventually(lambda: first.jobs, "claimed")
    lapse(q)
    with Consumer(q, second, ConsumerSettings(beat=20), on_event=told):
        eventually(lambda: second.jobs, "claimed again")
        assert cancel.request(q, job, "stop") is CancelAnswer.SIGNALLED
        eventually(lambda: told.outcomes() == {job: ["cancelled"]}, "the second claim stopped")
    assert [claim.attempts for claim in (*first.jobs, *second.jobs)] == [1, 2]
    assert first.jobs[0].token.check() is None
    assert second.jobs[0].token.check() == "stop"
    first.go.set()
    deaf.stop()
    deaf.join(20)
    assert len(records(q)) == 1


def test_a_worker_without_cancellation_hears_nothing(q: Queue) -> None:
    job, told, handler = put(q), Told(), Stubborn()
    with Consumer(q, handler, ConsumerSettings(cancel=False), on_event=told):
        eventually(lambda: handler.jobs, "in hand")
        assert cancel.request(q, job) is CancelAnswer.SIGNALLED
        handler.go.set()
        eventually(lambda: told.outcomes(), "done")
    assert told.outcomes() == {job: ["completed"]}


def test_an_event_that_overtakes_the_reply_of_its_claim_is_not_lost(valkey: Valkey, q: Queue) -> None:
    told, handler = Told(), Stubborn()
    with (
        RespProxy(valkey.url) as proxy,
        connect(proxy.url) as server,
        Consumer(Queue(server, q.name), handler, ConsumerSettings(beat=20), on_event=told),
    ):
        eventually(lambda: proxy.count(named("SUBSCRIBE")), "listening")
        # The claim's reply is kept back: the request is done, its answer waits in the proxy.
        held = proxy.arm("hold_reply", match=lambda r: r.name.startswith("EVAL") and b"gate" in r.words)
        job = put(q)
        held.wait()
        eventually(lambda: reads.job_state(q, job) is reads.JobState.ACTIVE, "claimed")
        assert cancel.request(q, job, "early") is CancelAnswer.SIGNALLED
        eventually(lambda: q.server.read("PUBSUB", "NUMSUB", q.keys.events)[1] == 1, "still listening")
        held.release()
        eventually(lambda: told.outcomes() == {job: ["cancelled"]}, "cancelled")


def test_events_of_other_kinds_and_nonsense_are_passed_over(q: Queue) -> None:
    told, handler = Told(), Stubborn()
    job = put(q)
    with Consumer(q, handler, on_event=told):
        eventually(lambda: handler.jobs, "in hand")
        for message in (b"\xff", b"[]", b"{", b'{"event":"cancel"}', b'{"event":"cancel","job":7}', b"null"):
            q.server.write("PUBLISH", q.keys.events, message)
        q.server.write("PUBLISH", q.keys.events, json.dumps({"event": "progress", "job": job}))
        q.server.write("PUBLISH", q.keys.events, json.dumps({"event": "cancel", "job": job, "extra": 1}))
        eventually(lambda: told.outcomes() == {job: ["cancelled"]}, "cancelled by the last one")
    assert [fields[b"result"] for fields in records(q)] == [b"cancelled:cancelled"]


def test_listening_goes_on_after_the_connection_was_cut(valkey: Valkey, q: Queue) -> None:
    told, handler = Told(), Stubborn()
    with (
        RespProxy(valkey.url) as proxy,
        connect(proxy.url) as server,
        Consumer(Queue(server, q.name), handler, ConsumerSettings(beat=20), on_event=told),
    ):
        job = put(q)
        eventually(lambda: handler.jobs, "in hand")
        proxy.forget()
        proxy.cut_all()
        eventually(lambda: proxy.count(named("SUBSCRIBE")), "listening again")
        eventually(lambda: cancel.request(q, job) and told.outcomes() == {job: ["cancelled"]}, "cancelled")


def test_a_token_keeps_its_first_reason() -> None:
    token = CancelToken()
    assert token.check() is None
    token.raise_if_cancelled()
    assert token.wait(0) is None
    assert token.cancel("one")
    assert not token.cancel("two")
    assert token.check() == token.wait(0) == "one"
    with pytest.raises(JobCancelled) as stopped:
        token.raise_if_cancelled()
    assert stopped.value.reason == "one"
    assert Cancelled().reason == "cancelled"


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_message_is_a_cancel_event_or_none(data: bytes) -> None:
    assert cancel_event(data) is None


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_cancel_event_is_read_whatever_its_texts(job: str, reason: str) -> None:
    data = json.dumps({"event": "cancel", "job": job, "reason": reason}).encode()
    assert cancel_event(data) == (job, reason)
