"""Whether the state database of a command line is there."""

from __future__ import annotations

import os

from emq_ops.database.profile import file_of


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
