"""The remote log of one stream: create-only numbered commits, each naming the hash of the one before.

Finding the head costs a few requests however long the log is: a listing behind the number known here, or behind the
newest checkpoint.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from emq_archive.errors import DamagedArchiveError, DeposedError, ForeignStateError, LostRaceError
from emq_archive.local.catalog import Catalog, Known
from emq_archive.local.checkpoint import check_snapshot, load, snapshot_of
from emq_archive.log.commit import (
    MAX_COMMIT_BYTES,
    Change,
    Commit,
    checkpoint_folder,
    checkpoint_key,
    checkpoint_lsn,
    commit_key,
    hash_of,
    log_folder,
    lsn_of,
)
from emq_archive.log.hostile import MISREAD, why_not
from emq_archive.log.signing import Signatures, canonical, signed
from emq_archive.model import Writer
from emq_archive.ports import Remote
from emq_archive.remote.back import not_kept, read_back

RACES = 20
"""How often another writer may be quicker within one call."""
MAX_CHECKPOINT_BYTES = 512 * 1024 * 1024
"""Of a checkpoint, packed and unpacked: some 700,000 segments. One that is larger is none of ours."""
_KEYS = {"format", "lsn", "head", "state", "token", "at", "opened", "segments", "removed", "erased", "redactions"}
_VERIFY = "run `emq-ops archive verify` on it; nothing is trimmed meanwhile"


class CommitLog:
    """Reads and extends the log. One thread."""

    checkpoint_every = 500
    page = 1000
    """Commits a listing answers: S3's own limit."""

    def __init__(self, catalog: Catalog, remote: Remote, writer: Writer) -> None:
        self.catalog = catalog
        self.remote = remote
        self.writer = writer
        self.ref = catalog.ref
        self._checked = False
        self._signatures = Signatures(remote.sign)

    def sync(self) -> Known:
        """As `read`, for writers, who build on the head: what stands there now is compared with what was read before
        (one request). Raises DeposedError and ForeignStateError where the head says that we must not."""
        self._checked = False
        known = self.read()
        if known.state is not None and known.state not in (self.writer.state, *self.writer.former):
            raise ForeignStateError(
                f"the archive of {self.ref} belongs to state {known.state}, and this is {self.writer.state}",
                where=self.remote.url,
                fix="use that state's database (--state), or another remote; "
                f"if it is gone for good: emq-ops state take-over {known.state}",
            )
        if known.token > self.writer.token > 0:
            fault = DeposedError(
                f"the log carries fencing token {known.token}, ours is {self.writer.token}: another leads here now",
                where=self.remote.url,
                fix="let the leader archive; this process stops writing",
            )
            fault.above = known.token
            raise fault
        return known

    def read(self) -> Known:
        """Reads what was committed since this host looked last. Raises DamagedArchiveError for a gap, a broken chain
        or, where it was not looked at yet, a head that is not what it was."""
        known = self.catalog.known()
        if known.lsn == 0:
            self._check_unknown_head()
            known = self._from_checkpoint(known)
        elif not self._checked:
            self._check_head(known)
        self._checked = True
        while True:
            page = self._list(known.lsn)
            # Many at once, or commits were lost, and a checkpoint says what they added up to.
            if len(page) == self.page or (page and page[0] != known.lsn + 1):
                jumped = self._from_checkpoint(known)
                if jumped.lsn > known.lsn:
                    known = jumped
                    continue
            known = self._read(known, page)
            if len(page) < self.page:
                break
        return known

    def _check_head(self, known: Known) -> None:
        """What this host knows as the head stands there; or it was lost, and what another shipped again follows it."""
        key = commit_key(self.ref, known.lsn)
        body = self.remote.get(key, most=MAX_COMMIT_BYTES)
        if body is None and self._list(known.lsn)[:1] == [known.lsn + 1]:
            return  # `_read` sees to it that it names the hash of ours
        if body is None:
            raise DamagedArchiveError(
                f"commit {key} is missing from the log", faults=(key,), where=self.remote.url, fix=_VERIFY
            )
        if hash_of(body) != known.head:
            raise DamagedArchiveError(
                f"commit {key} is not the one that this host read before", faults=(key,), fix=_VERIFY
            )
        self._signatures.check(body, f"commit {key}")

    def _check_unknown_head(self) -> None:
        """Where logs are signed, a host that knows nothing of one believes it by the signature of its head alone."""
        if self.remote.sign is None:
            return
        last = self._newest_checkpoint() or 0
        while page := self._list(last):
            last = page[-1]
        if last:
            Signatures(self.remote.sign).check(self._body(last), f"commit {commit_key(self.ref, last)}", must=True)

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
            self._signatures.check(body, f"commit {key}")
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
        return [lsn for key in keys if (lsn := lsn_of(key, self.ref)) is not None]

    def _body(self, lsn: int) -> bytes:
        key = commit_key(self.ref, lsn)
        body = self.remote.get(key, most=MAX_COMMIT_BYTES)
        if body is None:
            raise DamagedArchiveError(
                f"commit {key} is missing from the log", faults=(key,), where=self.remote.url, fix=_VERIFY
            )
        return body

    def commit(self, change: Change) -> Commit:
        """Appends a change to the head as this host knows it. Raises LostRaceError if another writer was quicker."""
        known = self.catalog.known()
        # A writer without a lease must not hide the leader's token.
        token = max(self.writer.token, known.token)
        writer = replace(self.writer, token=token, state=known.state or self.writer.state)
        commit = change.follow(known.lsn + 1, known.head, self.ref, writer)
        body, key = commit.body(self.remote.sign), commit_key(self.ref, commit.lsn)
        made, there = self.remote.create(key, body), read_back(self.remote, key)
        if there != body:
            if made == "created":
                raise not_kept(self.remote, key)
            # Our own lost reply, or another's commit: only our nonce and every byte alike mean that it is ours.
            raise LostRaceError(f"commit {key} was written by somebody else", where=self.remote.url)
        self.catalog.apply([(commit, hash_of(body))])
        return commit

    def append(self, change: Change) -> Commit:
        """Appends a change that rests on nothing but the head, whoever else writes. Raises LostRaceError where others
        are always quicker."""
        for _ in range(RACES):
            with contextlib.suppress(LostRaceError):
                return self.commit(change)
            self.sync()
        raise LostRaceError(f"another writer was quicker {RACES} times", where=self.remote.url)

    # --- checkpoints

    def checkpoint_if_due(self) -> None:
        """Writes a checkpoint where the last is `checkpoint_every` commits behind."""
        known = self.catalog.known()
        if known.lsn - known.checkpoint_lsn >= self.checkpoint_every:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Writes down what the commits so far add up to."""
        lsn = self.catalog.known().lsn
        text = canonical(signed(snapshot_of(self.catalog), self.remote.sign))
        self.remote.create(checkpoint_key(self.ref, lsn), gzip.compress(text, mtime=0))
        self.catalog.set(checkpoint_lsn=lsn)

    def _newest_checkpoint(self) -> int | None:
        for limit in (1, self.page):  # more only where others put something before ours
            keys = self.remote.list(checkpoint_folder(self.ref), limit=limit)
            found = next((lsn for key in keys if (lsn := checkpoint_lsn(key, self.ref)) is not None), None)
            if found is not None or len(keys) < limit:
                return found
        return None

    def _from_checkpoint(self, known: Known) -> Known:
        newest = self._newest_checkpoint()
        if newest is None or newest <= known.lsn:
            return known
        load(self.catalog, self.read_checkpoint(newest))
        return self.catalog.known()

    def read_checkpoint(self, lsn: int) -> dict[str, Any]:
        """A checkpoint's snapshot, checked against the commit that it stands on."""
        key = checkpoint_key(self.ref, lsn)
        body = self.remote.get(key, most=MAX_CHECKPOINT_BYTES)
        try:
            text = _unpacked(body or b"")
            snapshot: dict[str, Any] = json.loads(text)
        except (OSError, EOFError, ValueError, RecursionError, zlib.error) as fault:
            raise DamagedArchiveError(f"checkpoint {key} can't be read", faults=(key,), fix=_VERIFY) from fault
        if not isinstance(snapshot, dict) or not snapshot.keys() >= _KEYS or snapshot["format"] != 1:
            raise DamagedArchiveError(f"checkpoint {key} can't be read", faults=(key,), fix=_VERIFY)
        commit = self._body(lsn)
        self._signatures.check(commit, f"commit {commit_key(self.ref, lsn)}")
        self._signatures.check(text, f"checkpoint {key}")
        if snapshot["head"] != hash_of(commit):
            raise DamagedArchiveError(f"checkpoint {key} is not of its commit", faults=(key,), fix=_VERIFY)
        try:
            check_snapshot(snapshot)
        except MISREAD as fault:
            what = f"checkpoint {key} can't be read: {why_not(fault)}"
            raise DamagedArchiveError(what, faults=(key,), fix=_VERIFY) from fault
        return snapshot


def _unpacked(body: bytes) -> bytes:
    """Gunzipped, as far as a checkpoint of ours may go. Raises ValueError, zlib.error."""
    unpacker = zlib.decompressobj(wbits=31)
    text = unpacker.decompress(body, MAX_CHECKPOINT_BYTES)
    if not unpacker.eof:
        raise ValueError("too large, or cut off")
    return text
