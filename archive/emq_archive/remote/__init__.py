"""Object stores with create-only writes: a directory, or S3 and what is compatible with it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from emq_archive.ports import Remote
from emq_archive.remote.directory import DirectoryRemote
from emq_archive.remote.s3 import S3Options, S3Remote
from emq_ops.protocol.errors import BadInputError

__all__ = ["DirectoryRemote", "S3Options", "S3Remote", "open_remote"]

_FIX = "file:<folder> or s3://<bucket>/<prefix>"


def open_remote(url: str, *, base: Path | None = None, **options: str | int | bool | None) -> Remote:
    """Opens ``file:<folder>`` (relative to `base` or the working directory) or ``s3://<bucket>/<prefix>``. `options` of
    S3: see `S3Options`; they may stand in the URL's query too (``?endpoint=...&region=...``). An empty bucket is taken
    from ``BUCKET_NAME``. No request is made. Raises BadInputError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise BadInputError(f"'{parts.netloc}' is a host; a directory is on this one", where="--remote", fix=_FIX)
        path = unquote(parts.path)
        if not path:
            raise BadInputError("no folder is named", where="--remote", fix=_FIX)
        return DirectoryRemote((base or Path.cwd()) / Path(path).expanduser())
    if parts.scheme != "s3":
        raise BadInputError("this is no object store", where="--remote", fix=_FIX)
    given: dict[str, str | int | bool | None] = dict(parse_qsl(parts.query))
    given.update({name: value for name, value in options.items() if value is not None})
    return S3Remote(S3Options.of(parts.netloc, unquote(parts.path).strip("/"), given))
