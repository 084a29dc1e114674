"""One run of a command: the options as given, what they lead to, and where its report goes."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from emq_ops.cli.options import GlobalOptions, options_of
from emq_ops.cli.output import Row, emit_one, emit_rows
from emq_ops.config.effective import Layers
from emq_ops.config.loader import Loaded, load
from emq_ops.config.policies import policy
from emq_ops.config.wiring import Wiring
from emq_ops.passes.archive.declared import ARCHIVE
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.sweep.declared import SWEEP
from emq_ops.passes.trim.declared import TRIM
from emq_ops.policy.environment import INCLUDE_ALLOW, Environment
from emq_ops.policy.models import DeadPolicy, StalledPolicy, StreamPolicy
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.files import share_with, user_file

if TYPE_CHECKING:
    from emq_archive.local.store import SqlStore
    from emq_archive.ports import Remote
    from emq_ops.deploy.store.revisions import Revision
    from emq_ops.ledger.holds import Window
    from emq_ops.ledger.ledger import Ledger
    from emq_ops.passes.frame.stores import Stores
    from emq_ops.protocol.server import Server

PLACES = ("server", "state", "archive")
"""The sections that say where everything is."""


class CommandContext:
    """Reads the config, and opens server, state and archive, when it is asked for them: a command imports and opens no
    more than it uses."""

    def __init__(self, options: GlobalOptions) -> None:
        self.options = options

    @classmethod
    def of(cls, ctx: typer.Context) -> CommandContext:
        """Returns the context of this command line. Raises BadInputError for a named one that is not there."""
        options = options_of(ctx)
        if options.chosen is None and (
            options.context is not None
            or os.environ.get("EMQ_CONTEXT")
            or os.path.isfile(user_file(os.environ, "contexts.yaml"))
        ):
            from emq_ops.cli.choosing import choose

            choose(options, os.environ)
        return cls(options)

    # The config.

    def read_config(self) -> Loaded:
        """Reads the files of ``-c`` now, else ``config.yaml`` here; without either, or with ``--url`` alone, returns
        the defaults. Raises SourceError."""
        return self._load(self.env)

    def _load(self, env: Environment, only: Sequence[str] | None = None) -> Loaded:
        named = os.environ.get(INCLUDE_ALLOW, "").split(",")
        include = [Path(one.strip()) for one in (*self.options.allow_include, *named) if one.strip()]
        return load(self.options.config_files(), env, only=only, include=include)

    @functools.cached_property
    def env(self) -> Environment:
        """The environment, confined as its own variables and ``--allow-env`` say."""
        return Environment.of(os.environ, self.options.allow_env, confines=not self.options.adds_env)

    def look_at_config(self) -> Loaded:
        """The config with no reference resolved. Raises SourceError, BadInputError where there is none."""
        self.require_files()
        return self._load(self.env.unresolved())

    @functools.cached_property
    def loaded(self) -> Loaded:
        """The config, read once. Raises SourceError."""
        return self.read_config()

    def require_config(self) -> Loaded:
        """Returns the config, for commands that are about the file. Raises BadInputError where there is none."""
        self.require_files()
        return self.loaded

    def require_files(self) -> None:
        """Raises BadInputError where there is no config file."""
        if not self.options.config_files():
            raise BadInputError("no config file", fix="-c FILE, or a config.yaml here")

    @functools.cached_property
    def layers(self) -> Layers:
        """What holds for which queue."""
        return Layers(self.loaded)

    @functools.cached_property
    def wiring(self) -> Wiring:
        """Where server, state and archive are."""
        return self.wiring_of(self.loaded)

    @functools.cached_property
    def places(self) -> Wiring:
        """As `wiring`, for commands that need nothing else of the config: only those sections of it are read."""
        return self.wiring_of(self._load(self.env, PLACES))

    def wiring_of(self, loaded: Loaded) -> Wiring:
        """Returns where `loaded` says that everything is, with ``--url``, ``--state``, ``--local`` and ``--remote``
        over it. With ``--url`` and no file, the database of ``--local`` is also the state, unless ``--state`` names
        one."""
        options = self.options
        wiring = Wiring.of(loaded) if loaded.sources else Wiring.of_urls(self.env, Path.cwd())
        state = options.state
        if state is None and not loaded.sources and options.local is not None:
            state = options.local
        url = options.url
        if url is None and not loaded.sources:
            url = self.env.get("EMQ_URL")
        wiring = wiring.with_urls(server=url, state=state, local=options.local, remote=options.remote)
        share_with(wiring.group)
        return wiring

    @property
    def names_server(self) -> bool:
        """Whether a server was named, by a config or on the command line: looking must not start one."""
        return bool(self.loaded.sources) or self.wiring.server != Wiring.of_urls({}, Path()).server

    def policy(self, what: Pass, queue: str, target: str = "") -> Any:
        """Returns what the config says of a pass on a queue, or the policy's defaults, by which nothing is removed."""
        effective = self.layers.effective(queue)
        said = effective.passes.get(what.section)
        fields = (said or {}).get(target) if what.many else said
        if fields is None:
            return what.policy(protect=effective.protect)
        return policy(what.policy, fields, self.loaded.env, protect=effective.protect)

    def stalled(self, queue: str) -> StalledPolicy:
        """Returns what the config says of the sweep, or the defaults."""
        found: StalledPolicy = self.policy(SWEEP, queue)
        return found

    def dead(self, queue: str) -> DeadPolicy:
        """Returns what the config says of the trim; without it nothing bounds it."""
        found: DeadPolicy = self.policy(TRIM, queue)
        return found

    def stream(self, queue: str, stream: str) -> StreamPolicy:
        """Returns what the config says of a stream; nothing is trimmed where it says nothing."""
        found: StreamPolicy = self.policy(ARCHIVE, queue, stream)
        return found

    def windows(self) -> list[Window]:
        """Returns the config's maintenance windows that may matter to a pass now."""
        from emq_ops.cli.values import now_ms
        from emq_ops.config.windows import around

        return around(self.loaded.config.maintenance, now_ms())

    # What it opens.

    def server(self, verb: str) -> Server:
        """Opens the server; `verb` names the connection."""
        return self.wiring.connect(verb)

    def ledger(self) -> Ledger:
        """Opens the state database. Raises DatabaseError, DatabaseUnreachableError."""
        from emq_ops.ledger.ledger import open_ledger

        return open_ledger(self.wiring.state_url, renew=lambda: self.wiring.state_url)

    def ledger_alone(self) -> Ledger:
        """As `ledger`, for commands that need no server and no queue of the config. Its file may be gone: then
        ``--state`` names the state."""
        from emq_ops.ledger.ledger import open_ledger

        return open_ledger(self.places.state_url, renew=lambda: self.places.state_url)

    def server_wiring(self, applied: Revision | None) -> Wiring:
        """Returns where the server is: as the file or ``--url`` says, without either as the revision in force does."""
        if self.loaded.sources or self.options.url is not None or applied is None:
            return self.wiring
        return applied.document.wiring(self.env)

    @contextlib.contextmanager
    def ledger_if_there(self) -> Iterator[Ledger | None]:
        """Opens the state database; None where it is a file that nobody made yet: looking must not make one."""
        from emq_ops.cli.state import is_absent

        if is_absent(self.wiring.state_url):
            yield None
            return
        with self.ledger() as ledger:
            yield ledger

    @property
    def local_url(self) -> str:
        """The archive's local database. Raises BadInputError where no archive is configured."""
        found = self.wiring.archive_local
        if found is None:
            raise BadInputError("no archive is configured", fix="--local and --remote, or `archive:` in the config")
        return found

    def local(self) -> SqlStore:
        """Opens the archive's local database."""
        from emq_archive.local.store import open_local

        return open_local(self.local_url, lambda: self.local_url)

    def local_for_a_look(self) -> contextlib.AbstractContextManager[SqlStore]:
        """Opens the archive's local database; where it is a file that nobody made yet an empty one, gone afterwards."""
        from emq_ops.cli.stores import local_for_a_look

        return local_for_a_look(self.local_url)

    @contextlib.contextmanager
    def remote(self) -> Iterator[Remote]:
        """Opens the object store. No request is made before it is used."""
        from emq_ops.cli.stores import remote_of

        settings = self.wiring.archive_remote
        if settings is None:
            raise BadInputError("no object store is configured", fix="--remote file:DIR or s3://BUCKET/PREFIX")
        remote = remote_of(settings, lambda: self.wiring.archive_remote)
        try:
            yield remote
        finally:
            remote.close()

    @contextlib.contextmanager
    def stores(self, *, look: bool = False) -> Iterator[Stores]:
        """The archive as passes take it: opened when one needs it. `look`: a local database that nobody made yet is not
        made."""
        from emq_ops.passes.frame.stores import Stores

        with contextlib.ExitStack() as stack:

            def local() -> SqlStore:
                return stack.enter_context(self.local_for_a_look() if look else self.local())

            def remote() -> Remote:
                return stack.enter_context(self.remote())

            wiring = self.wiring
            yield Stores(local if wiring.archive_local else None, remote if wiring.archive_remote else None)

    # What it shows.

    @property
    def output(self) -> str:
        """The form of the report: table, json, jsonl or csv."""
        return self.options.output

    def emit_rows(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        """Writes rows to stdout in the form that was asked for."""
        emit_rows(rows, self.output, columns)

    def emit_one(self, row: Row) -> None:
        """Writes one object to stdout in the form that was asked for."""
        emit_one(row, self.output)
