"""Files that nobody else is to read: private whatever the umask, and never written through a planted link."""

from __future__ import annotations

import contextlib
import os
import tempfile

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600


def make_private(folder: str | os.PathLike[str], mode: int = PRIVATE_FOLDER) -> None:
    """Makes a folder, and those above it that are missing, with exactly `mode`. One that is there stays as it is."""
    path = os.path.abspath(folder)
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):  # somebody made it meanwhile
            os.mkdir(one, 0o700)
            os.chmod(one, mode)


def write_privately(path: str | os.PathLike[str], data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Replaces a file as a whole, with exactly `mode`. A link is replaced, not followed. Raises OSError."""
    # Of the same folder, by O_EXCL and O_NOFOLLOW, with a name that nobody can guess.
    fd, part = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".emq-")
    try:
        with open(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def create_privately(path: str | os.PathLike[str], mode: int = PRIVATE_FILE) -> int:
    """Makes a new, empty file with exactly `mode` and returns its descriptor. Raises FileExistsError (also for a link)
    and other OSErrors."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, mode)
    return fd
