"""Files that nobody else is to read: private whatever the umask, and never written through a planted link.

`share_with` lets a group read and write them, for the whole process: what one command makes is alike.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import stat
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO, Literal

from emq_ops.protocol.errors import BadInputError, one_line

Path = str | os.PathLike[str]
_group: list[int] = []


_KINDS = {"config": ("XDG_CONFIG_HOME", ".config"), "cache": ("XDG_CACHE_HOME", ".cache")}


def user_file(env: Mapping[str, str], name: str, kind: Literal["config", "cache"] = "config") -> str:
    """The path of a file that is of one user, and of no server: in the folder of settings, or of what may be lost."""
    variable, usual = _KINDS[kind]
    folder = env.get(variable) or ""
    if not os.path.isabs(folder):
        folder = os.path.join(env.get("HOME") or os.path.expanduser("~"), usual)
    return os.path.join(folder, "emq-ops", name)


def share_with(group: str | None) -> None:
    """Lets a group (a name or a number) read and write what is made from now on; None: nobody but ourselves. Raises
    BadInputError for a group that is not there."""
    _group.clear()
    if group is None:
        return
    if group.isdecimal():
        _group.append(int(group))
        return
    import grp  # and the system's databases of users: hardly anybody asks for it

    try:
        _group.append(grp.getgrnam(group).gr_gid)
    except KeyError:
        raise BadInputError(f"no group '{one_line(group)}'", where="state.group", fix="a group of this host") from None


def settle(fd_or_path: int | Path, *, folder: bool = False, mode: int | None = None) -> None:
    """Gives what was just made its mode, whatever the umask: for us alone, or for the group too; or exactly `mode`.
    Raises OSError."""
    if mode is None:
        mode = (0o770 if folder else 0o660) if _group else (0o700 if folder else 0o600)
    if _group:
        os.chown(fd_or_path, -1, _group[0])
    os.chmod(fd_or_path, mode)


OURS = ".emq"
"""A folder of this name is ours alone, whoever made it."""


def tighten(path: Path, *, folder: bool = False) -> None:
    """Takes from what is there, and is our user's, the rights that it would not be made with today: an earlier version
    went by the umask. What it is not allowed to change stays as it is (`loose` tells)."""
    if loose(path, folder=folder) is not None:
        with contextlib.suppress(OSError):
            settle(path, folder=folder)


def loose(path: Path, *, folder: bool = False) -> str | None:
    """Whose rights on what is there are more than it would be made with today, in words; None where nobody's are, or
    nothing is there."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not (stat.S_ISDIR(found.st_mode) if folder else stat.S_ISREG(found.st_mode)):
        return None
    shared = stat.S_IRWXG if _group and found.st_gid == _group[0] else 0
    more = stat.S_IMODE(found.st_mode) & 0o077 & ~shared
    if not more:
        return None
    who = "everybody" if more & 0o007 else f"group {found.st_gid}"
    return f"{who} may {'write' if more & 0o022 else 'read'} it"


def make_private(folder: Path) -> list[str]:
    """Makes a folder, and those above it that are missing; one that is there stays as it is, but for an ``.emq``, which
    is for us alone. Returns the folders that were made, the uppermost first. Raises OSError."""
    path = os.path.abspath(folder)
    if os.path.basename(path) == OURS:
        tighten(path, folder=True)
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    missing.reverse()
    for one in missing:
        with contextlib.suppress(FileExistsError):  # somebody made it meanwhile
            os.mkdir(one, 0o700)
            settle(one, folder=True)
    return missing


def create_privately(path: Path) -> int:
    """Makes a new, empty file and returns its descriptor. Raises OSError; FileExistsError for a link, too."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    settle(fd)
    return fd


def temporary_beside(path: Path) -> tuple[int, str]:
    """Makes a file in the folder of `path` under a name that nobody can guess; returns its descriptor and path. It is
    to be renamed to `path`, or removed. Raises OSError."""
    return tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".emq-")  # O_EXCL, O_NOFOLLOW, 0600


def write_privately(path: Path, data: bytes) -> None:
    """Replaces a file as a whole. A link is replaced, not followed. Raises OSError."""
    fd, part = temporary_beside(path)
    try:
        with open(fd, "wb") as file:
            settle(fd)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def opened(path: Path, flags: int = 0) -> IO[bytes]:
    """Opens a regular file for reading. What somebody put there instead is never waited for: a pipe, a device. Raises
    OSError; EINVAL for one that is no regular file."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return open(fd, "rb")
    os.close(fd)
    raise OSError(errno.EINVAL, "no regular file", os.fspath(path))


def regular(path: pathlib.Path) -> pathlib.Path:
    """Where a file at `path` goes, symbolic links followed. Raises BadInputError for what is there and is no regular
    file: it must not be replaced."""
    real = pathlib.Path(os.path.realpath(path))
    try:
        kind = os.stat(real).st_mode
    except OSError:
        return real
    if stat.S_ISREG(kind):
        return real
    what = "a folder" if stat.S_ISDIR(kind) else "a device or a pipe"
    raise BadInputError(f"this is {what}, no file", where=str(path), fix="name a file")


@contextlib.contextmanager
def written(path: pathlib.Path, *, mode: int | None = None) -> Iterator[IO[str]]:
    """A text file that appears whole, and on the disk, at the end of the block; nothing where the block fails. It is
    private, unless `mode` says otherwise. A device or a pipe (``/dev/stdout``) is written to as it is. Raises
    BadInputError."""
    try:
        if _stream(path):
            with path.open("w", encoding="utf-8") as file:
                yield file
            return
        real = regular(path)
        fd, part = temporary_beside(real)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                settle(fd, mode=mode)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, real)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
    except OSError as fault:
        what = f"can't write: {fault.strerror}"
        raise BadInputError(what, where=str(path), fix="check the path and rights") from None


def _stream(path: pathlib.Path) -> bool:
    try:
        kind = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)
