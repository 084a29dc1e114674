"""What a module gets to work with: its queue, the passes' needs, and a clock that can be interrupted."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.deadset import DeadJob
from emq_ops.passes.acts.sources import FindArchived
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.stores import NO_STORES, Stores
from emq_ops.playbook.decisions import Result
from emq_ops.policy.models import DeadPolicy, StalledPolicy, StreamPolicy
from emq_ops.protocol.errors import EmqError, OutcomeUnknownError, UnreachableError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server


class Stopped(BaseException):
    """The run is to end now (Ctrl-C, SIGTERM); what is in hand stays begun and is looked at again by a resume."""


@dataclass(frozen=True)
class QueuePolicy:
    """What the config says of a queue; all at its default where there is no config."""

    stalled: StalledPolicy = field(default_factory=StalledPolicy)
    dead: DeadPolicy = field(default_factory=DeadPolicy)
    streams: dict[str, StreamPolicy] = field(default_factory=dict)
    protect: bool = False
    max_removals: int | None = None


_AS_IT_COMES = QueuePolicy()


@dataclass(frozen=True)
class Ops:
    """What a run works on, opened by its caller: the server, the state database, and what the config says.

    `policy`: of a queue; `configured`: the queues that the config names; `windows`: maintenance windows of the config;
    `stores`: the archive; `find`: looks there for a job; `suspects`: for a queue, whether a restart may have killed a
    job; `named`: whether anything else (revision, ledger, archive) names a queue.
    """

    server: Server
    ledger: Ledger
    policy: Callable[[str], QueuePolicy] = lambda _queue: _AS_IT_COMES
    configured: Sequence[str] = ()
    windows: Sequence[Window] = ()
    stores: Stores = NO_STORES
    find: FindArchived | None = None
    suspects: Callable[[str], Callable[[DeadJob], bool]] | None = None
    named: Callable[[str], bool] = lambda _queue: False

    @functools.cached_property
    def services(self) -> Services:
        """What passes run with."""
        return Services(self.server, self.ledger, self.stores, lambda: self.windows)


@dataclass(frozen=True)
class TaskContext:
    """One task on one queue. `step` names this very doing within `run`; `check`: nothing may be changed; `say`: a word
    of progress; `stopping`: set when the run is to end; `fetched`: what the module's `fetch` saw of the queue."""

    ops: Ops
    queue: Queue
    run: str
    step: str
    check: bool
    say: Callable[[str], None]
    beat: Callable[[], None]
    stopping: threading.Event
    fetched: Any = None
    settled: Mapping[str, Any] = field(default_factory=dict)
    """In a check run: settings that earlier tasks would have left behind (`Decision.settles`)."""
    part: list[Result] = field(default_factory=list)
    """What the module did so far, which counts where a fault ends it."""

    @property
    def policy(self) -> QueuePolicy:
        """What the config says of the queue."""
        return self.ops.policy(self.queue.name)

    @contextlib.contextmanager
    def telling(self, so_far: Callable[[], Result]) -> Iterator[None]:
        """Where a fault comes out of the block, what was done before it is kept (`part`). After a lost reply the same
        is done again, and nothing is kept yet."""
        try:
            yield
        except (UnreachableError, OutcomeUnknownError):
            raise
        except EmqError:
            with contextlib.suppress(EmqError):
                self.part.append(so_far())
            raise

    def go_on(self) -> None:
        """Raises Stopped when the run is to end. Called between requests."""
        if self.stopping.is_set():
            raise Stopped
        self.beat()

    def sleep(self, seconds: float) -> None:
        """Waits, giving signs of life; raises Stopped when the run is to end."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.go_on()
            self.stopping.wait(min(left, 5.0))
        self.go_on()
