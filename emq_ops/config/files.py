"""Files that appear whole or not at all, and nothing else replaced by them: a device, a pipe, a symbolic link stays."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from emq_ops.protocol.errors import BadInputError


def regular(path: Path) -> Path:
    """Where a file at `path` goes, symbolic links followed. Raises BadInputError for what is there and is no regular
    file: it must not be replaced."""
    real = Path(os.path.realpath(path))
    try:
        kind = os.stat(real).st_mode
    except OSError:
        return real
    if stat.S_ISREG(kind):
        return real
    what = "a folder" if stat.S_ISDIR(kind) else "a device or a pipe"
    raise BadInputError(f"this is {what}, no file", where=str(path), fix="name a file")


@contextlib.contextmanager
def written(path: Path, *, mode: int = 0o600) -> Iterator[IO[str]]:
    """A text file that appears whole, and on the disk, at the end of the block; nothing where the block fails. A device
    or a pipe (``/dev/stdout``) is written to as it is. Raises BadInputError."""
    try:
        if _stream(path):
            with path.open("w", encoding="utf-8") as file:
                yield file
            return
        real = regular(path)
        part = real.with_name(f"{real.name}.{os.getpid()}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(real)
        finally:
            part.unlink(missing_ok=True)
    except OSError as fault:
        what = f"can't write: {fault.strerror}"
        raise BadInputError(what, where=str(path), fix="check the path and rights") from None


def _stream(path: Path) -> bool:
    try:
        kind = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)
