"""Bringing a local database to this version's schema, whole or not at all."""

from __future__ import annotations

from importlib import resources

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from emq_archive.errors import LocalError
from emq_archive.local.engine import shown, transaction
from emq_archive.local.tables import metadata

VERSION_TABLE = "archive_version"
_POSTGRES_LOCK = 7_305_601_120


def scripts() -> ScriptDirectory:
    """The migrations that ship with this version."""
    config = Config()
    config.set_main_option("script_location", str(resources.files("emq_archive.local").joinpath("migrations")))
    config.set_main_option("path_separator", "newline")
    return ScriptDirectory.from_config(config)


def current(connection: Connection) -> str | None:
    """The revision that a database is at, None for an empty one."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def upgrade(engine: Engine, directory: ScriptDirectory | None = None) -> None:
    """Brings the database up in one transaction under a lock: killed anywhere, it stands where it stood; several
    processes at once are fine. Raises LocalError for a database of a newer version."""
    directory = directory or scripts()
    head = directory.get_current_head()
    with transaction(engine, writes=False) as connection:
        if current(connection) == head:
            return
    with transaction(engine, writes=True) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _POSTGRES_LOCK})
        at = current(connection)  # another process may have been quicker
        if at == head:
            return
        if at is not None and at not in {script.revision for script in directory.walk_revisions()}:
            raise LocalError(
                f"the local database is of a newer version of emq-ops (schema {at})",
                where=shown(engine.url),
                fix="use that version, or another --local",
            )
        _run(connection, directory)


def _run(connection: Connection, directory: ScriptDirectory) -> None:
    def steps(revision: object, _context: object) -> object:
        return directory._upgrade_revs("head", revision)  # type: ignore[arg-type]  # alembic's own recipe

    with EnvironmentContext(Config(), directory, fn=steps) as environment:
        environment.configure(
            connection=connection,
            target_metadata=metadata,
            version_table=VERSION_TABLE,
            transactional_ddl=True,
            transaction_per_migration=False,
        )
        # No begin_transaction(): the caller's transaction holds all of it.
        environment.run_migrations()
