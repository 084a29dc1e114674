"""What a producer is given: jobs and flows as an application says them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.transitions.enqueue import Dedup, NewJob
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy


def span_ms(span: timedelta | int, what: str) -> int:
    """A span as ms: a timedelta, or a number that is one already. Raises BadInputError."""
    if isinstance(span, timedelta):
        return round(span / timedelta(milliseconds=1))
    if isinstance(span, bool) or not isinstance(span, int):
        raise BadInputError(f"{what} is {span!r}", fix="give a timedelta, or whole milliseconds")
    return span


def moment_ms(at: datetime | int) -> int:
    """An instant as unix ms: an aware datetime, or a number that is one already. Raises BadInputError."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise BadInputError(f"{at} has no time zone", fix="datetime.now(UTC), or at.replace(tzinfo=...)")
        return round(at.timestamp() * 1000)
    return span_ms(at, "at")


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job to enqueue. `payload`: for the producer's codec; bytes are taken as they are.

    `lane`: a ``GRP`` id (`lane_of`); `delay`: from the server's now (timedelta, or ms); `at`: not before (aware
    datetime, or unix ms); `dedup`: not while another job holds its key; `id`: a ``JOB`` id of your own, so that adding
    it again changes nothing (minted unless given).
    """

    payload: Any
    lane: str | None = None
    delay: timedelta | int | None = None
    at: datetime | int | None = None
    dedup: Dedup | None = None
    id: str | None = None

    def as_new(self, encode: Callable[[Any], bytes], mint: Callable[[], str]) -> NewJob:
        """The job as the wire takes it. Raises BadInputError."""
        return NewJob(
            self.id if self.id is not None else mint(),
            encoded(self.payload, encode),
            self.lane,
            None if self.delay is None else span_ms(self.delay, "delay"),
            None if self.at is None else moment_ms(self.at),
            self.dedup,
        )


def encoded(payload: Any, encode: Callable[[Any], bytes]) -> bytes:
    """`payload` as bytes: as it is, if it is bytes, else by `encode`."""
    return bytes(payload) if isinstance(payload, bytes | bytearray | memoryview) else encode(payload)


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A job of a flow: it waits for its `children`, in `queue` (its parent's unless given). `on_death`: what its death
    is to its parent, the parent's own (``FAIL``) or one child fewer (``IGNORE``)."""

    payload: Any
    children: Sequence[FlowSpec] = field(default=())
    queue: str | None = None
    on_death: ParentPolicy = ParentPolicy.FAIL
    id: str | None = None

    def as_flow(self, encode: Callable[[Any], bytes], mint: Callable[[], str]) -> FlowJob:
        """The flow as the wire takes it, with ids for all. Raises BadInputError."""
        return FlowJob(
            self.id if self.id is not None else mint(),
            encoded(self.payload, encode),
            self.queue,
            self.on_death,
            tuple(child.as_flow(encode, mint) for child in self.children),
        )


@dataclass(frozen=True, slots=True)
class AddedFlow:
    """A flow that stands: the id of each job, as the flow was given. `added`: False where the root was there before."""

    job: str
    children: tuple[AddedFlow, ...]
    added: bool = True

    @staticmethod
    def of(flow: FlowJob, added: bool) -> AddedFlow:
        return AddedFlow(flow.job, tuple(AddedFlow.of(child, added) for child in flow.children), added)
