"""Object stores with create-only writes: a directory, or S3 and what is compatible with it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import SplitResult, urlsplit

from emq_ops.protocol.errors import BadInputError

if TYPE_CHECKING:
    from emq_archive.ports import Remote
    from emq_archive.remote.s3_history import S3History

__all__ = ["history_of", "open_remote"]

Renew = Callable[[], Mapping[str, Any]]
Options = dict[str, str | int | bool | None]

BACKENDS = {"file": "emq_archive.remote.directory", "s3": "emq_archive.remote.s3"}
"""Scheme -> its module, imported by who needs it: S3's SDK takes longer to import than most commands do."""
FIX = "file:<folder> or s3://<bucket>/<prefix>"


class Backend(Protocol):
    """What a backend's module has."""

    @staticmethod
    def open_url(parts: SplitResult, base: Path | None, options: Options, renew: Renew | None = None) -> Remote:
        """Opens a URL of its scheme. Raises BadInputError."""


def open_remote(
    url: str,
    *,
    base: Path | None = None,
    sign: str | None = None,
    renew: Renew | None = None,
    **options: str | int | bool | None,
) -> Remote:
    """Opens ``file:<folder>`` (relative to `base` or the working directory) or ``s3://<bucket>/<prefix>``. `options` of
    S3: see `S3Options`; those that are no secret may stand in the URL's query too (``?endpoint=...&region=...``). An
    empty bucket is taken from ``BUCKET_NAME``. `renew`: gives the secrets among the options as they are now.
    `sign`: a key with which the logs there are signed, and checked. No
    request is made. Raises BadInputError."""
    parts = urlsplit(url)
    if parts.fragment or (parts.scheme == "file" and parts.query):  # a folder named so would be another, silently
        raise BadInputError("'#' and '?' mean something in a URL", where="--remote", fix="write %23 and %3F for them")
    if "@" in parts.netloc:
        fix = "name the bucket alone; credentials come from the environment or a profile"
        raise BadInputError("a store's URL takes no user and no password", where="--remote", fix=fix)
    module = BACKENDS.get(parts.scheme)
    if module is None:
        raise BadInputError("this is no object store", where="--remote", fix=FIX)
    backend = cast(Backend, importlib.import_module(module))
    given: Options = {name: value for name, value in options.items() if value is not None}
    opened = backend.open_url(parts, base, given, renew)
    opened.sign = sign.encode("utf-8") if sign else None
    return opened


def history_of(remote: Remote) -> S3History | None:
    """What the store keeps of deleted objects, None for one that keeps nothing (a directory)."""
    opened = getattr(remote, "history", None)
    return opened() if opened is not None else None
