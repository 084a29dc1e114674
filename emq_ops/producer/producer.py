"""A producer for threads: every call returns once the server has replied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from emq_ops.producer.payloads import JSON, Codec
from emq_ops.producer.specs import AddedFlow, FlowSpec, JobSpec, encoded, span_ms
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.ids import Minter, mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import ConnectionOptions, Server, connect
from emq_ops.protocol.transitions import cancel, flows, reads, repeat
from emq_ops.protocol.transitions.enqueue import Dedup, Enqueued, NewJob, put_many
from emq_ops.protocol.transitions.repeat import Repeatable

MINTS = 8
"""How often an id is minted anew where a job of that id stands."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a queue's claims: jobs in flight at once and claims a second (None: nothing does), how many are in
    flight, and for how long (ms) the rate lets nothing through."""

    concurrency: int | None
    rate: int | None
    in_flight: int
    rate_wait_ms: int


class Producer:
    """Puts jobs into queues. Thread-safe.

    `server`: an open one, which stays open, or a URL, whose connections `close` gives back. `codec`: what payloads
    other than bytes become. `minter`: where ids come from; one a process is enough.

    Ids never clash: each process mints with a random node, and where a job of a minted id stands all the same, another
    one is minted. Raises EmqError from every call: BadInputError before anything is sent, UnreachableError where it
    certainly was not carried out, OutcomeUnknownError where its reply was lost: with an id of your own, or a
    deduplication key, the call can be made again.
    """

    def __init__(
        self,
        server: Server | str,
        *,
        codec: Codec = JSON,
        options: ConnectionOptions | None = None,
        minter: Minter | None = None,
    ) -> None:
        self._owns = isinstance(server, str)
        self._server = connect(server, options) if isinstance(server, str) else server
        self._codec = codec
        self._minter = minter

    def close(self) -> None:
        """Gives back the connections, if they are its own."""
        if self._owns:
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def enqueue(
        self,
        queue: str,
        payload: Any,
        *,
        lane: str | None = None,
        delay: timedelta | int | None = None,
        at: datetime | int | None = None,
        dedup: Dedup | None = None,
        id: str | None = None,
    ) -> Enqueued:
        """Enqueues a job; see JobSpec. Not `added`: the job of that `id`, or the one that holds the key, stands, and
        nothing changed."""
        [told] = self.enqueue_many(queue, [JobSpec(payload, lane, delay, at, dedup, id)])
        if isinstance(told, EmqError):
            raise told
        return told

    def enqueue_many(self, queue: str, jobs: Iterable[Any]) -> list[Enqueued | EmqError]:
        """Enqueues many jobs, payloads or `JobSpec`, in one round trip a thousand scripts; what came of each, in order.
        Refusals of single jobs are told in their places, not raised. Where anything is malformed, nothing is sent."""
        specs = [one if isinstance(one, JobSpec) else JobSpec(one) for one in jobs]
        q, fresh = Queue(self._server, queue), self._mint
        news = [spec.as_new(self._codec.encode, fresh) for spec in specs]
        told = put_many(q, news)
        for _ in range(MINTS):
            clashed = [n for n, one in enumerate(told) if specs[n].id is None and _clashed(one, news[n])]
            if not clashed:
                break
            for n in clashed:
                news[n] = replace(news[n], job=fresh())
            for n, one in zip(clashed, put_many(q, [news[n] for n in clashed]), strict=True):
                told[n] = one
        return told

    def add_flow(self, queue: str, flow: FlowSpec) -> AddedFlow:
        """Adds a flow whole; its root waits in `queue` until its children are done. With an id at the root it can be
        added again after a lost reply: nothing is added twice, and what was cut off is finished.

        Raises StateError where another job has one of the ids.
        """
        job = flow.as_flow(self._codec.encode, self._mint)
        return AddedFlow.of(job, flows.add(Queue(self._server, queue), job))

    def add_flows(self, queue: str, many: Sequence[FlowSpec]) -> list[AddedFlow | EmqError]:
        """As add_flow, each for itself; refusals are told in their places."""
        jobs = [flow.as_flow(self._codec.encode, self._mint) for flow in many]
        told = flows.add_many(Queue(self._server, queue), jobs)
        return [
            one if isinstance(one, EmqError) else AddedFlow.of(job, one) for job, one in zip(jobs, told, strict=True)
        ]

    def repeat(
        self,
        queue: str,
        name: str,
        every: timedelta | int,
        payload: Any,
        *,
        first_in: timedelta | int = 0,
    ) -> bool:
        """Registers a repeatable: a job of `payload` every so often (timedelta, or ms), the first after `first_in`.
        Something has to fire it: the pass `promote` of a daemon, or EchoMQ's pump. False: the name lives; nothing
        changed."""
        q = Queue(self._server, queue)
        template = encoded(payload, self._codec.encode)
        return repeat.register(q, name, span_ms(every, "every"), template, first_in_ms=span_ms(first_in, "first_in"))

    def stop_repeating(self, queue: str, name: str) -> bool:
        """Cancels a repeatable. False: there is none of that name."""
        return repeat.cancel(Queue(self._server, queue), name)

    def repeatables(self, queue: str) -> list[Repeatable]:
        """A queue's repeatables, soonest first."""
        return repeat.repeatables(Queue(self._server, queue))

    def cancel(self, queue: str, job: str, reason: str = cancel.DEFAULT_REASON) -> str:
        """Asks for a job's cancellation: ``removed`` (it waited), ``signalled`` (a worker was told), ``locked``,
        ``gone`` or ``not cancellable``."""
        return cancel.request(Queue(self._server, queue), job, reason).value

    def state(self, queue: str, job: str) -> str:
        """Where a job is: ``pending``, ``active``, ``scheduled``, ``dead``, ``awaiting_children``, ``unknown`` or
        ``absent`` (done, or never there)."""
        return reads.job_state(Queue(self._server, queue), job).value

    def holder(self, queue: str, key: str) -> str | None:
        """The job that holds a deduplication key; None where nobody does."""
        return reads.dedup_owner(Queue(self._server, queue), key)

    def limits(self, queue: str) -> Limits:
        """What bounds the queue's claims now; workers of emq-ops keep to it in the step that claims."""
        q = Queue(self._server, queue)
        return Limits(reads.concurrency(q), reads.rate(q), reads.counts(q).active, reads.rate_wait_ms(q))

    def _mint(self) -> str:
        return mint() if self._minter is None else self._minter.mint("JOB")


def _clashed(told: Enqueued | EmqError, new: NewJob) -> bool:
    return isinstance(told, Enqueued) and not told.added and told.job == new.job
