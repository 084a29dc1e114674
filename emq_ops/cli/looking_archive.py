"""What `plan` and `apply` see of the archive: its local database and its object store. With it comes all that an
archive imports."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from emq_archive.errors import StoreRefusedError
from emq_archive.local import store
from emq_archive.local.catalog import Catalog
from emq_archive.local.store import SqlStore
from emq_archive.log.commit import MAX_COMMIT_BYTES, commit_key, hash_of
from emq_archive.log.owners import owners
from emq_archive.model import StreamRef
from emq_archive.ports import Remote
from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import Tell, say
from emq_ops.cli.state import stands
from emq_ops.cli.stores import remote_of
from emq_ops.database.profile import shown
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import states_of
from emq_ops.passes.archive.status import unread
from emq_ops.policy.secrets import hide
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server

STORE_SECONDS = 10.0
"""How long the store may take to say what it holds."""
SAMPLE = 20
"""So many streams are looked for in the store."""


def say_archive(context: CommandContext, ledger: Ledger, tell: Tell) -> str:
    """A line on each; returns what the store holds of the streams archived so far, in words."""
    url = context.local_url
    if not stands(url, store.PROFILE, store.LOCAL):
        tell(f"emq-ops: archive.local {shown(url)}: is not there yet; the first pass makes it")
        return _say_remote(None, ledger, context, tell)
    with store.open_local(url) as local:
        count = len(local.streams())
        tell(f"emq-ops: archive.local {shown(url)}: {count} stream{'s' if count != 1 else ''}")
        return _say_remote(local, ledger, context, tell)


class UnreadStreams:
    """How many records of a stream the archive did not read yet, by its local database, opened when first asked; None
    where that knows nothing of the stream."""

    def __init__(self, context: CommandContext, server: Server) -> None:
        self._url, self._server = context.local_url, server
        self._held: SqlStore | None = None
        self._there = stands(self._url, store.PROFILE, store.LOCAL)

    def __call__(self, queue: str, stream: str) -> int | None:
        if not self._there:
            return None
        if self._held is None:
            self._held = store.open_local(self._url)
        return unread(self._server, self._held, StreamRef(queue, stream))

    def close(self) -> None:
        if self._held is not None:
            self._held.close()


def _say_remote(local: SqlStore | None, ledger: Ledger, context: CommandContext, tell: Tell) -> str:
    """Says what the store holds."""
    settings = context.wiring.archive_remote
    if settings is None:
        return ""
    with _asking(context) as remote:
        found = list(itertools.islice(owners(remote), SAMPLE + 1))
        strangers = sorted({owner.state for owner in found} - states_of(ledger)) if local is not None else []
        more = " or more" if len(found) > SAMPLE else ""
        told = f"logs of {min(len(found), SAMPLE)}{more} streams" if found else "answers; holds no log yet"
        tell(f"emq-ops: archive.remote {hide(remote.url)}: {told}")
        for state in strangers:
            say(
                f"emq-ops: archive.remote: logs of state {state}, which is not ours, are not extended; another prefix, "
                f"or `emq-ops state take-over {state}` if it is gone for good"
            )
        return _held(local, remote) if local is not None else ""


@contextlib.contextmanager
def _asking(context: CommandContext) -> Iterator[Remote]:
    """The store, bounded; what it refuses is a fault of the config."""
    settings = context.wiring.archive_remote
    assert settings is not None
    remote = remote_of(settings)
    try:
        with deadline.deadline(STORE_SECONDS):
            yield remote
    except StoreRefusedError as fault:
        raise BadInputError(fault.what, where=f"archive.remote {hide(remote.url)}", fix=fault.fix) from fault
    finally:
        remote.close()


def _held(local: SqlStore, remote: Remote) -> str:
    """How many of the streams that this host archived the store holds, in words for a plan that moves there."""
    heads = [(ref, known) for ref in local.streams() if (known := Catalog(local, ref).known()).lsn]
    if not heads:
        return "nothing was archived yet"
    lacking = []
    for ref, known in heads[:SAMPLE]:
        body = remote.get(commit_key(ref, known.lsn), most=MAX_COMMIT_BYTES)
        if body is None or hash_of(body) != known.head:
            lacking.append(str(ref))
    looked = min(len(heads), SAMPLE)
    if not lacking:
        return f"the new place holds the logs of all {looked} streams that were looked for, up to what is known here"
    return (
        f"the new place lacks the log of {len(lacking)} of {looked} streams (such as {lacking[0]}): their archiving "
        "stops until the old bucket is copied there, or `emq-ops archive reship` wrote what is held here"
    )


def prove_store(context: CommandContext) -> None:
    """Proves that the store refuses to create an object twice, and takes the probe's object away again. Raises
    StoreUnreachableError, BadInputError."""
    with _asking(context) as remote:
        remote.probe(leave=False)
