"""The archive's local database and object store, opened when a pass first needs them, shared by all runs."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from emq_ops.protocol.errors import BadInputError

if TYPE_CHECKING:
    from emq_archive.local.store import SqlStore
    from emq_archive.ports import Remote
    from emq_archive.write.pace import Allowance
    from emq_ops.ledger.ledger import Ledger
    from emq_ops.passes.trim.archiver import DeadArchiver
    from emq_ops.policy.models import DeadPolicy
    from emq_ops.protocol.fence import Fence
    from emq_ops.protocol.queue import Queue

_DEAD_ARCHIVE = "emq_ops.passes.trim.into_archive"
"""Imported when a trim archives: one that does not need not pay for it."""


class Stores:
    """Given as what opens them; None where that part is not configured. Thread-safe."""

    def __init__(self, local: Callable[[], SqlStore] | None, remote: Callable[[], Remote] | None) -> None:
        self._open_local, self._open_remote = local, remote
        self._local: SqlStore | None = None
        self._remote: Remote | None = None
        self._lock = threading.Lock()
        self.paces: dict[str, Allowance] = {}
        """Of each queue, how often its dead trims alone may ship."""

    @property
    def configured(self) -> bool:
        """Whether there is an archive to write to."""
        return self._open_local is not None

    def local(self) -> SqlStore:
        """Raises BadInputError where no archive is configured, and what opening it raises."""
        if self._open_local is None:
            raise BadInputError("no archive is configured", fix="--local and --remote, or `archive:` in the config")
        with self._lock:
            if self._local is None:
                self._local = self._open_local()
            return self._local

    def remote(self) -> Remote:
        """Raises BadInputError where no object store is configured. Makes no request."""
        if self._open_remote is None:
            raise BadInputError("no object store is configured", fix="--remote file:DIR or s3://BUCKET/PREFIX")
        with self._lock:
            if self._remote is None:
                self._remote = self._open_remote()
            return self._remote

    def dead_archive(
        self, q: Queue, policy: DeadPolicy, fence: Fence, ledger: Ledger, *, paced: bool = False
    ) -> DeadArchiver:
        """The archive of a queue's dead jobs, written under the run's lease; `paced`: trims of a few jobs share
        segments. Raises as `local` and `remote`."""
        make = importlib.import_module(_DEAD_ARCHIVE).archiver
        made: DeadArchiver = make(self, q, policy, fence, ledger, paced=paced)
        return made

    def renew(self) -> None:
        """The object store's credentials are read again."""
        again = getattr(self._remote, "renew", None)
        if again is not None:
            again()

    def close(self) -> None:
        """Gives back what was opened."""
        with self._lock:
            for one in (self._local, self._remote):
                if one is not None:
                    one.close()
            self._local = self._remote = None


NO_STORES = Stores(None, None)
"""Where no archive is configured."""
