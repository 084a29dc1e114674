"""Running one task's pass: the same passes that commands and playbooks call, with the daemon's lease and stores."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from emq_archive.local.store import SqlStore, open_local
from emq_archive.model import Writer
from emq_archive.ports import Remote
from emq_archive.reports import Report as StreamReport
from emq_archive.write.dead import DeadArchive
from emq_ops.daemon.tasks import Task
from emq_ops.ledger import bounds, holds, runs
from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.archive.stream import StreamArchive, archiving
from emq_ops.passes.events import Emit, PassEnded, PassStarted
from emq_ops.passes.lease.holder import who
from emq_ops.passes.observe.queue_state import QueueState, observe
from emq_ops.passes.sweep.stalled_sweep import sweep
from emq_ops.passes.trim.dead_trim import trim
from emq_ops.policy.models import DeadPolicy, Policy, StalledPolicy, StreamPolicy
from emq_ops.policy.rows import as_row
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server


class Report(Protocol):
    """A report of a pass."""

    def as_row(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class Done:
    """A run that ended well. `idle`: there was nothing to do. `sight`: the queue as it was seen before a sweep."""

    report: Report
    idle: bool
    sight: QueueState | None = None


@dataclass(frozen=True, slots=True)
class Bounded:
    """Queues whose next trim a list bounds, each with the revision that set it; `held`: those among them with a hold,
    whose trim is yet to come."""

    bounds: list[tuple[str, int]]
    held: set[str]


class Stores:
    """The archive's local database and object store, opened when first needed, shared by all runs."""

    def __init__(self, local_url: str | None, remote: Callable[[], Remote] | None) -> None:
        self._local_url, self._open_remote = local_url, remote
        self._local: SqlStore | None = None
        self._remote: Remote | None = None
        self._lock = threading.Lock()

    def local(self) -> SqlStore:
        """Raises BadInputError where no archive is configured, and what opening it raises."""
        if self._local_url is None:
            raise BadInputError("no archive is configured", fix="give the config an `archive:` section and apply it")
        with self._lock:
            if self._local is None:
                self._local = open_local(self._local_url)
            return self._local

    def remote(self) -> Remote:
        """Raises BadInputError where no object store is configured. Makes no request."""
        if self._open_remote is None:
            raise BadInputError("no object store is configured", fix="archive.remote in the config")
        with self._lock:
            if self._remote is None:
                self._remote = self._open_remote()
            return self._remote

    def close(self) -> None:
        """Gives back what was opened."""
        with self._lock:
            for one in (self._local, self._remote):
                if one is not None:
                    one.close()
            self._local = self._remote = None


class Worker:
    """Runs passes. Thread-safe; the caller sees to it that a task runs once at a time."""

    def __init__(
        self, server: Server, ledger: Ledger, stores: Stores, windows: Callable[[], list[Window]], emit: Emit
    ) -> None:
        self.server, self.ledger, self.stores, self.windows, self.emit = server, ledger, stores, windows, emit
        self.ended = runs.PendingRuns(ledger)
        """Archive cycles that are over. Flush it now and then: the ledger may be away when one ends."""
        self._archives: dict[tuple[str, str], StreamArchive] = {}
        self._lock = threading.Lock()

    def run(
        self,
        task: Task,
        fence: Fence,
        *,
        lease_ms: int,
        trigger: str = "daemon",
        force: bool = False,
        policy: Policy | None = None,
        only: Collection[str] | None = None,
        bounded: bool = True,
    ) -> Done:
        """One run of `task` under its queue's lease, within its timeout. `lease_ms`: the queue's longest lease;
        `policy`: another than the task's (a command's flags); `force`: a stream ships and trims all that may go;
        `only`: a trim removes none but these; `bounded`: nor others than a plan listed.

        Raises what the passes raise.
        """
        policy = policy or task.policy
        with deadline.deadline(task.timeout_s or 3.15e7):
            if isinstance(policy, StalledPolicy):
                seen = observe(self.server, task.queue)
                report = sweep(
                    self.server,
                    task.queue,
                    policy,
                    self.ledger,
                    fence,
                    windows=self.windows(),
                    trigger=trigger,
                    emit=self.emit,
                )
                return Done(report, report.idle, seen)
            if isinstance(policy, DeadPolicy):
                return self._trim(task.queue, policy, fence, lease_ms, trigger, only, bounded=bounded)
            return self._archive(task, policy, fence, trigger, force)

    def _trim(
        self,
        queue: str,
        policy: DeadPolicy,
        fence: Fence,
        lease_ms: int,
        trigger: str,
        only: Collection[str] | None,
        *,
        bounded: bool,
    ) -> Done:
        with self.ledger.read() as connection:
            bound = bounds.of(connection, queue) if bounded else None
        if bound is not None:
            only = bound.ids if only is None else set(only) & set(bound.ids)
        report = trim(
            self.server,
            queue,
            policy,
            self.ledger,
            fence,
            archiver=self._dead_archive(queue, policy, fence) if policy.archive else None,
            only=only,
            lease_ms=lease_ms,
            trigger=trigger,
            emit=self.emit,
        )
        if bound is not None and not report.more and report.status == "done":
            with self.ledger.write() as connection:
                bounds.spend(connection, bound)
        return Done(report, report.idle)

    def bounded(self, queues: Collection[str]) -> Bounded:
        """What bounds the next trims of these queues. Raises what the ledger raises."""
        if not queues:
            return Bounded([], set())
        with self.ledger.read() as connection:
            found = bounds.of_many(connection, sorted(queues))
        names = {queue for queue, _ in found}
        return Bounded(
            found, {one.queue for one in holds.all_holds(self.ledger) if one.queue in names} if names else set()
        )

    def spend(self, spent: list[tuple[str, int]]) -> None:
        """The first trims after an apply had nothing to do on these queues (with the revision that bounds each)."""
        if spent:
            with self.ledger.write() as connection:
                bounds.spend_many(connection, spent)

    def _dead_archive(self, queue: str, policy: DeadPolicy, fence: Fence) -> DeadArchive:
        writer = Writer(fence.state, fence.token, who())
        target = Queue(self.server, queue)
        return DeadArchive(target, self.stores.local(), self.stores.remote(), archiving(policy.archiving), writer)

    def _archive(self, task: Task, policy: StreamPolicy, fence: Fence, trigger: str, force: bool) -> Done:
        queue, stream = task.queue, task.stream
        with self.ledger.read() as connection:
            hold = holds.hold_of(connection, queue, self.server.now_ms(queue))
        if hold is not None:
            return Done(StreamReport(queue, stream, refused=[f"held by {hold.holder}"]), idle=True)
        archive = self._stream_archive(queue, stream, policy)
        try:
            report = archive.run(fence, who(), force=force)
        except EmqError as fault:
            with contextlib.suppress(EmqError):  # kept until the ledger takes it
                self._record(queue, stream, policy, fence, trigger, archive.report, str(fault))
            raise
        idle = not (report.folded or report.shipped or report.trimmed or report.notes or report.unstorable)
        if not idle:
            self._record(queue, stream, policy, fence, trigger, report, None)
        return Done(report, idle)

    def _stream_archive(self, queue: str, stream: str, policy: StreamPolicy) -> StreamArchive:
        with self._lock:
            known = self._archives.get((queue, stream))
        if known is not None and known.policy == policy:
            return known
        made = StreamArchive(self.server, queue, stream, policy, self.stores.local(), self.stores.remote())
        with self._lock:
            self._archives[(queue, stream)] = made
        return made

    def forget_archives(self) -> None:
        """Drops what is remembered of streams: the stores changed."""
        with self._lock:
            self._archives.clear()

    def _record(
        self,
        queue: str,
        stream: str,
        policy: StreamPolicy,
        fence: Fence,
        trigger: str,
        report: StreamReport,
        error: str | None,
    ) -> None:
        names = ("folded", "shipped", "segments", "trimmed", "unshipped", "lag_records")
        counts = {name: getattr(report, name) for name in names if getattr(report, name)}
        status = runs.FAILED if error else runs.DONE
        told = {"stream": stream, **as_row(policy)}
        begun = runs.new("archive", queue, holder=who(), trigger=trigger, token=fence.token, policy=told)
        run = begun.over(status, counts, error)
        self.emit(PassStarted(queue, run.id, kind="archive", token=fence.token))
        self.emit(PassEnded(queue, run.id, kind="archive", status=status, counts=counts, error=error))
        self.ended.put(run)
