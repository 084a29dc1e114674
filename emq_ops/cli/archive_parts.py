"""What the archive's commands stand on: server, state, local database and object store of a command line."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import make_url

from emq_archive.remote import open_remote
from emq_ops.cli.context import Globals
from emq_ops.cli.settings import loaded_of, wiring_of
from emq_ops.cli.state import is_absent
from emq_ops.config.effective import Layers
from emq_ops.config.loader import Loaded
from emq_ops.config.policies import stream_policy
from emq_ops.config.wiring import RemoteSettings, Wiring
from emq_ops.policy.models import StreamPolicy
from emq_ops.policy.scalars import parse_duration, parse_size
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server

if TYPE_CHECKING:
    from emq_archive.local.store import SqlStore
    from emq_archive.ports import Remote

LOCAL = "emq_archive.local.store"
"""Imported when a local database is opened: most commands have no use for it, and for what it imports."""


@dataclass(frozen=True, slots=True)
class Parts:
    """One command's settings; opens what it is asked for."""

    loaded: Loaded
    wiring: Wiring

    @classmethod
    def of(cls, options: Globals) -> Parts:
        """From the command line. Raises ConfigError."""
        loaded = loaded_of(options)
        return cls(loaded, wiring_of(options, loaded))

    @property
    def local_url(self) -> str:
        """Raises BadInputError where no archive is configured."""
        found = self.wiring.archive_local
        if found is None:
            raise BadInputError("no archive is configured", fix="--local and --remote, or `archive:` in the config")
        return found

    @property
    def names_server(self) -> bool:
        """Whether a server was named, by a config or on the command line: looking must not start one."""
        return bool(self.loaded.sources) or self.wiring.server != Wiring.of_urls({}, Path()).server

    @property
    def has_remote(self) -> bool:
        """Whether an object store is configured."""
        return self.wiring.archive_remote is not None

    @contextlib.contextmanager
    def local(self) -> Iterator[SqlStore]:
        """The local database."""
        with open_local(self.local_url) as store:
            yield store

    @contextlib.contextmanager
    def local_for_a_look(self) -> Iterator[SqlStore]:
        """The local database; where it is a file that nobody made yet an empty one, gone afterwards: looking must not
        make one."""
        url = self.local_url
        file = make_url(url).database if url.startswith("sqlite") else None
        if file is None or not is_absent(file):
            with open_local(url) as store:
                yield store
            return
        with tempfile.TemporaryDirectory(prefix="emq-ops-") as folder, open_local(f"sqlite:///{folder}/empty") as store:
            yield store

    @contextlib.contextmanager
    def remote(self) -> Iterator[Remote]:
        """The object store. No request is made before it is used."""
        settings = self.wiring.archive_remote
        if settings is None:
            raise BadInputError("no object store is configured", fix="--remote file:DIR or s3://BUCKET/PREFIX")
        remote = remote_of(settings)
        try:
            yield remote
        finally:
            remote.close()

    @contextlib.contextmanager
    def server(self, verb: str) -> Iterator[Server]:
        """The server; `verb` names the connection."""
        with self.wiring.connect(verb) as server:
            yield server

    def stream_policy(self, queue: str, stream: str) -> StreamPolicy:
        """What the config says of a stream; nothing is trimmed where it says nothing."""
        effective = Layers(self.loaded).effective(queue)
        fields = effective.streams.get(stream)
        if fields is None:
            return StreamPolicy(protect=effective.protect)
        return stream_policy(fields, self.loaded.env, protect=effective.protect)


def open_local(url: str) -> SqlStore:
    """The local database at `url`. Raises what opening it raises."""
    return cast("SqlStore", importlib.import_module(LOCAL).open_local(url))


def remote_of(settings: RemoteSettings) -> Remote:
    """The object store of resolved settings. Raises BadInputError."""
    options: dict[str, Any] = {}
    if settings.url.startswith("s3:"):
        options = {
            "endpoint": settings.endpoint,
            "region": settings.region,
            "storage_class": settings.storage_class,
            "path_style": None if settings.addressing == "auto" else settings.addressing == "path",
            "access_key_id": settings.access_key_id,
            "secret_access_key": settings.secret_access_key,
            "session_token": settings.session_token,
            "profile": settings.profile,
            "ca": settings.ca,
            "timeout_ms": settings.timeout_ms,
        }
    return open_remote(settings.url, **options)


def with_flags(
    policy: StreamPolicy,
    *,
    keep: int | None,
    max_age: str | None,
    groups: str | None,
    trim_after: str | None,
    segment: str | None,
    max_removals: int | None,
) -> StreamPolicy:
    """A policy with a command line's flags over it. `keep` and `max_age` replace both of the policy's. Raises
    BadInputError."""
    if keep is not None or max_age is not None:
        if policy.protect:
            raise BadInputError("the queue is protected", fix="take `protect: true` out of the config first")
        age = None if max_age is None else scalar(parse_duration, max_age, "--max-age")
        policy = replace(policy, keep=keep, max_age_ms=age)
    if groups is not None:
        policy = replace(policy, groups=groups)  # type: ignore[arg-type]  # checked by the policy
    changes: dict[str, Any] = {}
    if trim_after is not None:
        changes["trim_after"] = trim_after
    if segment is not None:
        changes["segment_bytes"] = scalar(parse_size, segment, "--segment")
    if changes:
        policy = replace(policy, archiving=replace(policy.archiving, **changes))
    return policy if max_removals is None else replace(policy, max_removals=max_removals)


def scalar(parse: Any, text: str, where: str) -> int:
    """A duration or a size of the command line. Raises BadInputError."""
    try:
        return int(parse(text))
    except ValueError as fault:
        raise BadInputError(f"'{text}' is not understood: {fault}", where=where) from None
