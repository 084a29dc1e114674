"""The remote log of one stream: create-only numbered commits, each naming the hash of the one before.

Finding the head costs a few requests however long the log is: a listing behind the number known here, or behind the
newest checkpoint.
"""

from __future__ import annotations

import gzip
import json
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from emq_archive.errors import DamagedArchiveError, DeposedError, ForeignStateError, LostRaceError
from emq_archive.local.catalog import Catalog, Known
from emq_archive.log.commit import (
    Commit,
    LetGo,
    Segment,
    checkpoint_folder,
    checkpoint_key,
    checkpoint_lsn,
    commit_key,
    hash_of,
    log_folder,
    lsn_of,
)
from emq_archive.model import StreamId
from emq_archive.ports import Fence, Remote

_VERIFY = "run `emq-ops archive verify` on it; nothing is trimmed meanwhile"


@dataclass(frozen=True, slots=True)
class Head:
    """The last commit: its number (0: the log is empty) and hash."""

    lsn: int
    hash: str | None


class Log:
    """Reads and extends the log. One thread."""

    checkpoint_every = 500
    page = 1000
    """Commits a listing answers: S3's own limit."""

    def __init__(self, catalog: Catalog, remote: Remote, fence: Fence) -> None:
        self.catalog = catalog
        self.remote = remote
        self.fence = fence
        self.ref = catalog.ref
        self._checked = False

    def find_head(
        self,
    ) -> Head:
        """The head, without any knowledge of this host and without changing it: three requests, however long the log
        is (and one more for each 1,000 commits since the last checkpoint)."""
        newest = self._newest_checkpoint()
        lsn = newest or 0
        while page := self._list(lsn):
            lsn = page[-1]
            if len(page) < self.page:
                break
        if lsn == 0:
            return Head(0, None)
        return Head(lsn, hash_of(self._body(lsn)))

    def sync(
        self,
    ) -> Known:
        """As `read`, for writers, who build on the head: what stands there now is compared with what was read before
        (one request). Raises DeposedError and ForeignStateError where the head says that we must not."""
        self._checked = False
        known = self.read()
        if known.state is not None and known.state != self.fence.state:
            raise ForeignStateError(
                f"the archive of {self.ref} belongs to state {known.state}, and this is {self.fence.state}",
                where=self.remote.url,
                fix="use that state's database (--state), or another remote; "
                "`archive restore` into a new local database takes it over",
            )
        if known.token > self.fence.token > 0:
            raise DeposedError(
                f"the log carries fencing token {known.token}, ours is {self.fence.token}: another leads here now",
                where=self.remote.url,
                fix="let the leader archive; this process stops writing",
            )
        return known

    def read(
        self,
    ) -> Known:
        """Reads what was committed since this host looked last. Raises DamagedArchiveError for a gap, a broken chain
        or, where it was not looked at yet, a head that is not what it was."""
        known = self.catalog.known()
        if known.lsn == 0:
            known = self._from_checkpoint(known)
        elif not self._checked and hash_of(self._body(known.lsn)) != known.head:
            raise DamagedArchiveError(
                f"commit {commit_key(self.ref, known.lsn)} is not the one that this host read before",
                faults=(commit_key(self.ref, known.lsn),),
                fix=_VERIFY,
            )
        self._checked = True
        while True:
            page = self._list(known.lsn)
            if len(page) == self.page:
                jumped = self._from_checkpoint(known)
                if jumped.lsn > known.lsn:
                    known = jumped
                    continue
            known = self._read(known, page)
            if len(page) < self.page:
                break
        return known

    def _read(self, known: Known, numbers: Sequence[int]) -> Known:
        commits: list[tuple[Commit, str]] = []
        previous, expected = known.head, known.lsn + 1
        for lsn in numbers:
            if lsn != expected:
                missing = commit_key(self.ref, expected)
                raise DamagedArchiveError(f"commit {missing} is missing from the log", faults=(missing,), fix=_VERIFY)
            body = self._body(lsn)
            key = commit_key(self.ref, lsn)
            commit = Commit.of(body, key)
            if commit.lsn != lsn or commit.ref != self.ref or commit.previous != (previous or ""):
                raise DamagedArchiveError(f"commit {key} does not follow the one before it", faults=(key,), fix=_VERIFY)
            previous, expected = hash_of(body), lsn + 1
            commits.append((commit, previous))
            if len(commits) == 100:
                self.catalog.apply(commits)
                commits = []
        self.catalog.apply(commits)
        return self.catalog.known() if numbers else known

    def _list(self, after: int) -> list[int]:
        """Numbers of the commits behind `after`, at most 1,000: one request."""
        # Commits begin with a digit, the checkpoints' folder does not.
        keys = self.remote.list(log_folder(self.ref) + "0", after=commit_key(self.ref, after), limit=self.page)
        return [lsn for key in keys if (lsn := lsn_of(key)) is not None]

    def _body(self, lsn: int) -> bytes:
        key = commit_key(self.ref, lsn)
        body = self.remote.get(key)
        if body is None:
            raise DamagedArchiveError(
                f"commit {key} is missing from the log", faults=(key,), where=self.remote.url, fix=_VERIFY
            )
        return body

    def commit(
        self,
        kind: str,
        *,
        at: int,
        add: Sequence[Segment] = (),
        remove: Sequence[Segment] = (),
        opens: int | None = None,
        erased: tuple[str, StreamId] | None = None,
        redact: str | None = None,
        after: str | None = None,
        let_go: LetGo | None = None,
    ) -> Commit:
        """Appends a commit to the head as this host knows it. Raises LostRaceError if another writer was quicker."""
        known = self.catalog.known()
        lsn = known.lsn + 1
        commit = Commit(
            lsn=lsn,
            kind=kind,
            ref=self.ref,
            state=self.fence.state,
            previous=known.head or "",
            writer=self.fence.writer,
            nonce=secrets.token_hex(16),
            token=max(self.fence.token, known.token),  # a writer without a lease must not hide the leader's
            at=at,
            add=tuple(replace(segment, lsn=lsn) for segment in add),
            remove=tuple((segment.lsn, segment.key) for segment in remove),
            opens=opens,
            erased=erased,
            redact=redact,
            after=after,
            let_go=let_go,
        )
        body, key = commit.body(), commit_key(self.ref, lsn)
        if self.remote.create(key, body) == "exists":
            # Our own lost reply, or another's commit: only our nonce and every byte alike mean that it is ours.
            there = self.remote.get(key)
            if there != body:
                raise LostRaceError(f"commit {key} was written by somebody else", where=self.remote.url)
        self.catalog.apply([(commit, hash_of(body))])
        return commit

    # --- checkpoints

    def checkpoint_if_due(
        self,
    ) -> None:
        """Writes a checkpoint where the last is `checkpoint_every` commits behind."""
        known = self.catalog.known()
        if known.lsn - known.checkpoint_lsn < self.checkpoint_every:
            return
        text = json.dumps(self.catalog.snapshot(), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        body = gzip.compress(text.encode("utf-8"), mtime=0)
        self.remote.create(checkpoint_key(self.ref, known.lsn), body)
        self.catalog.set(checkpoint_lsn=known.lsn)

    def _newest_checkpoint(self) -> int | None:
        keys = self.remote.list(checkpoint_folder(self.ref), limit=1)
        return checkpoint_lsn(keys[0]) if keys else None

    def _from_checkpoint(self, known: Known) -> Known:
        newest = self._newest_checkpoint()
        if newest is None or newest <= known.lsn:
            return known
        self.catalog.load(self.read_checkpoint(newest))
        return self.catalog.known()

    def read_checkpoint(
        self,
        lsn: int,
    ) -> dict[str, Any]:
        """A checkpoint's snapshot, checked against the commit that it stands on."""
        key = checkpoint_key(self.ref, lsn)
        body = self.remote.get(key)
        try:
            snapshot: dict[str, Any] = json.loads(gzip.decompress(body or b""))
        except (OSError, EOFError, ValueError, zlib.error) as fault:
            raise DamagedArchiveError(f"checkpoint {key} can't be read", faults=(key,), fix=_VERIFY) from fault
        if snapshot.get("format") != 1 or snapshot["head"] != hash_of(self._body(lsn)):
            raise DamagedArchiveError(f"checkpoint {key} is not of its commit", faults=(key,), fix=_VERIFY)
        return snapshot
