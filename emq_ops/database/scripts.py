"""Alembic, run inside one transaction of ours. It takes as long to import as all that an ordinary command does."""

from __future__ import annotations

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData


def directory_of(folder: str) -> ScriptDirectory:
    """The migrations of a folder."""
    config = Config()
    config.set_main_option("script_location", folder)
    config.set_main_option("path_separator", "newline")
    return ScriptDirectory.from_config(config)


def run(connection: Connection, directory: ScriptDirectory, version_table: str, metadata: MetaData) -> None:
    """Every step from where the database is to the head of `directory`, in the caller's transaction."""

    def steps(revision: object, _context: object) -> object:
        return directory._upgrade_revs("head", revision)  # type: ignore[arg-type]  # alembic's own recipe

    with EnvironmentContext(Config(), directory, fn=steps) as environment:
        environment.configure(
            connection=connection,
            target_metadata=metadata,
            version_table=version_table,
            transactional_ddl=True,
            transaction_per_migration=False,
        )
        # No begin_transaction(): the caller's transaction holds all of it.
        environment.run_migrations()
