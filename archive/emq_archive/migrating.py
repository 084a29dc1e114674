"""The schema upgrade itself: alembic, run inside one transaction of ours."""

from __future__ import annotations

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from emq_archive.database import Migrations


def scripts(migrations: Migrations) -> ScriptDirectory:
    """The migrations that ship with this version."""
    config = Config()
    config.set_main_option("script_location", str(migrations.folder))
    config.set_main_option("path_separator", "newline")
    return ScriptDirectory.from_config(config)


def bring_up(migrations: Migrations, engine: Engine, directory: ScriptDirectory | None = None) -> None:
    """Brings a database to the head of `directory` (those that ship): see `Migrations.upgrade`."""
    directory = directory or scripts(migrations)
    head = directory.get_current_head()
    with migrations.transaction(engine, writes=True) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": migrations.lock})
        at = migrations.current(connection)  # another process may have been quicker
        if at == head:
            return
        if at is not None and at not in {script.revision for script in directory.walk_revisions()}:
            raise migrations.newer(at, engine)
        _run(migrations, connection, directory)


def _run(migrations: Migrations, connection: Connection, directory: ScriptDirectory) -> None:
    def steps(revision: object, _context: object) -> object:
        return directory._upgrade_revs("head", revision)  # type: ignore[arg-type]  # alembic's own recipe

    with EnvironmentContext(Config(), directory, fn=steps) as environment:
        environment.configure(
            connection=connection,
            target_metadata=migrations.metadata,
            version_table=migrations.version_table,
            transactional_ddl=True,
            transaction_per_migration=False,
        )
        # No begin_transaction(): the caller's transaction holds all of it.
        environment.run_migrations()
