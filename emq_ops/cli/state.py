"""The state database of a command line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from sqlalchemy import make_url

from emq_ops.config.wiring import Wiring
from emq_ops.ledger.ledger import Ledger, open_ledger


def is_absent(file: str) -> bool:
    """Whether nobody made this file yet. One that can't be looked at is there: opening it says what is wrong."""
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def ledger_if_there(wiring: Wiring) -> Iterator[Ledger | None]:
    """The ledger, or None where it is a file that nobody made yet: looking must not make one."""
    url = wiring.state_url
    file = make_url(url).database if url.startswith("sqlite") else None
    if file is not None and is_absent(file):
        yield None
        return
    with open_ledger(url) as ledger:
        yield ledger
