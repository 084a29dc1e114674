"""A producer for asyncio: the same calls, awaited. Those that come while a flush is under way share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self, TypeVar

from emq_ops.producer.payloads import JSON, Codec
from emq_ops.producer.producer import Limits, Producer
from emq_ops.producer.specs import AddedFlow, FlowSpec, JobSpec
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.ids import Minter
from emq_ops.protocol.server import ConnectionOptions, Server
from emq_ops.protocol.transitions.cancel import DEFAULT_REASON
from emq_ops.protocol.transitions.enqueue import Dedup, Enqueued
from emq_ops.protocol.transitions.repeat import Repeatable

T = TypeVar("T")
THREADS = 4


class AsyncProducer:
    """See Producer, whose calls these are. For one event loop; the connection is opened when it is first needed.

    A call that is cancelled while it is sent may be carried out all the same.
    """

    def __init__(
        self,
        server: Server | str,
        *,
        codec: Codec = JSON,
        options: ConnectionOptions | None = None,
        minter: Minter | None = None,
    ) -> None:
        self._make = partial(Producer, server, codec=codec, options=options, minter=minter)
        self._threads = ThreadPoolExecutor(THREADS, "emq-producer")
        self._opening: asyncio.Task[Producer] | None = None
        self._waiting: dict[str, list[tuple[JobSpec, asyncio.Future[Enqueued]]]] = {}
        self._flushing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Sends what still waits, and gives back the connections, if they are its own."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])
        if self._opening is not None and not self._opening.cancelled() and self._opening.exception() is None:
            await self._run(self._opening.result().close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        await self._producer()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def enqueue(
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
        """As Producer.enqueue. Calls of one moment go in one flush."""
        done: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(queue, []).append((JobSpec(payload, lane, delay, at, dedup, id), done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return await done

    async def enqueue_many(self, queue: str, jobs: Iterable[Any]) -> list[Enqueued | EmqError]:
        """As Producer.enqueue_many."""
        return await self._call(lambda producer: producer.enqueue_many(queue, list(jobs)))

    async def add_flow(self, queue: str, flow: FlowSpec) -> AddedFlow:
        """As Producer.add_flow."""
        return await self._call(lambda producer: producer.add_flow(queue, flow))

    async def add_flows(self, queue: str, many: Sequence[FlowSpec]) -> list[AddedFlow | EmqError]:
        """As Producer.add_flows."""
        return await self._call(lambda producer: producer.add_flows(queue, many))

    async def repeat(
        self, queue: str, name: str, every: timedelta | int, payload: Any, *, first_in: timedelta | int = 0
    ) -> bool:
        """As Producer.repeat."""
        return await self._call(lambda producer: producer.repeat(queue, name, every, payload, first_in=first_in))

    async def stop_repeating(self, queue: str, name: str) -> bool:
        """As Producer.stop_repeating."""
        return await self._call(lambda producer: producer.stop_repeating(queue, name))

    async def repeatables(self, queue: str) -> list[Repeatable]:
        """As Producer.repeatables."""
        return await self._call(lambda producer: producer.repeatables(queue))

    async def cancel(self, queue: str, job: str, reason: str = DEFAULT_REASON) -> str:
        """As Producer.cancel."""
        return await self._call(lambda producer: producer.cancel(queue, job, reason))

    async def state(self, queue: str, job: str) -> str:
        """As Producer.state."""
        return await self._call(lambda producer: producer.state(queue, job))

    async def holder(self, queue: str, key: str) -> str | None:
        """As Producer.holder."""
        return await self._call(lambda producer: producer.holder(queue, key))

    async def limits(self, queue: str) -> Limits:
        """As Producer.limits."""
        return await self._call(lambda producer: producer.limits(queue))

    async def _producer(self) -> Producer:
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._run(self._make))
        return await asyncio.shield(self._opening)

    async def _call(self, call: Callable[[Producer], T]) -> T:
        return await self._run(partial(call, await self._producer()))

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                for queue, some in waiting.items():
                    await self._send(queue, some)
        finally:
            self._flushing = None

    async def _send(self, queue: str, some: list[tuple[JobSpec, asyncio.Future[Enqueued]]]) -> None:
        try:
            told = await self.enqueue_many(queue, [spec for spec, _ in some])
        except BadInputError as fault:
            if len(some) == 1:
                _settle(some[0][1], fault)
                return
            for alone in some:  # one malformed job must not refuse the others
                await self._send(queue, [alone])
        except BaseException as fault:  # noqa: BLE001  # whatever it is, each of the callers hears of it
            for _, done in some:
                _settle(done, fault)
        else:
            for (_, done), outcome in zip(some, told, strict=True):
                _settle(done, outcome)


def _settle(done: asyncio.Future[Enqueued], outcome: Enqueued | BaseException) -> None:
    if done.done():
        return
    if isinstance(outcome, BaseException):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)
