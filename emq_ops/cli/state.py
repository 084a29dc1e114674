"""Whether a database of a command line is there."""

from __future__ import annotations

import os

from emq_ops.database.engine import open_database
from emq_ops.database.migrations import Migrations
from emq_ops.database.profile import Profile, file_of


def is_absent(url: str) -> bool:
    """Returns whether the database is a file that nobody made yet. One that can't be looked at is there: opening it
    says what is wrong."""
    file = file_of(url)
    if file is None:
        return False
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def stands(url: str, profile: Profile, migrations: Migrations) -> bool:
    """Whether the database at `url` is there and was made by us; looking makes none. Raises DatabaseError,
    DatabaseUnreachableError."""
    if is_absent(url):
        return False
    with open_database(url, profile) as database, database.read() as connection:
        return migrations.current(connection) is not None
