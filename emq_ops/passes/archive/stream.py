"""The stream archive as a pass: policy, fence and deadline in, report out. See `emq_archive.driver`."""

from __future__ import annotations

from dataclasses import replace

from emq_archive.driver import Driver, Progress
from emq_archive.local.store import SqlStore
from emq_archive.model import Policy, Redact, StreamId, Writer
from emq_archive.ports import Remote
from emq_archive.reports import Report
from emq_archive.source import StreamSource
from emq_ops.policy.models import ArchivePolicy, Redaction, StreamPolicy
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server


def archiving(policy: ArchivePolicy) -> Policy:
    """What streams and dead jobs have in common, as the driver takes it."""
    redact = policy.redact or Redaction()
    return Policy(
        segment_bytes=policy.segment_bytes,
        ship_after_ms=policy.ship_after_ms,
        trim_after=policy.trim_after,
        local_keep_ms=policy.local_keep_ms,
        expire_after_ms=policy.expire_after_ms,
        compact_grace_ms=policy.compact_grace_ms,
        redact=Redact(redact.drop, redact.hash, redact.salt or ""),
    )


def driver_policy(policy: StreamPolicy) -> Policy:
    """A stream's policy as the driver takes it."""
    return replace(archiving(policy.archiving), keep=policy.keep, max_age_ms=policy.max_age_ms, groups=policy.groups)


class StreamArchive:
    """The pass over one stream. Keep it from run to run: it remembers how far it read in this life of the process, so
    that a run with nothing to do costs next to nothing. One thread at a time.
    """

    def __init__(
        self, server: Server, queue: str, stream: str, policy: StreamPolicy, local: SqlStore, remote: Remote
    ) -> None:
        self.policy = policy
        self._source = StreamSource(Queue(server, queue), stream)
        self._local, self._remote = local, remote
        self._driver: Driver | None = None

    def run(
        self,
        fence: Fence,
        writer: str,
        *,
        force: bool = False,
        below: StreamId | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """One cycle under the queue's lease. `writer` names host and process in the remote log. `force`: all that the
        policy lets go is shipped and trimmed at once; nothing at or above `below` is trimmed. `progress`: see `Driver`.

        Raises what `Driver.cycle` raises; `report` says what was done before.
        """
        log = Writer(fence.state, fence.token, writer)
        if self._driver is None:
            self._driver = Driver(self._source, self._local, self._remote, driver_policy(self.policy), fence, log)
        self._driver.lead(fence, log)
        return self._driver.cycle(force=force, below=below, max_removals=self.policy.max_removals, progress=progress)

    def preview(self) -> Report:
        """What a forced run would do; changes nothing, needs no lease."""
        policy = driver_policy(self.policy)
        return Driver(self._source, self._local, self._remote, policy, None, Writer("")).preview()

    @property
    def report(self) -> Report:
        """Of the present or last run."""
        ref = self._source.ref
        return self._driver.report if self._driver is not None else Report(ref.queue, ref.stream)
