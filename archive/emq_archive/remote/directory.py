"""A directory with the guarantees of an object store: whole objects, create-only, durable when a call returns."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote

from emq_archive.errors import (
    ArchiveError,
    DamagedArchiveError,
    DiskFullError,
    StoreRefusedError,
    StoreUnreachableError,
)
from emq_archive.remote.back import not_larger
from emq_ops.protocol import deadline, files
from emq_ops.protocol.errors import BadInputError

_TEMP = ".emq-temp"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EINVAL, errno.EISDIR, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG)
_ODD = (errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG)
"""What reading an object says that is a folder, a pipe, a socket, a device or a link to itself."""
_STALE_SECONDS = 24 * 3600
_BLOCK = 1024 * 1024


def open_url(parts: SplitResult, base: Path | None, _options: object, _renew: object = None) -> DirectoryRemote:
    """``file:<folder>``, relative to `base`. Raises BadInputError."""
    fix = "file:<folder> or s3://<bucket>/<prefix>"
    if parts.netloc not in ("", "localhost"):
        raise BadInputError(f"'{parts.netloc}' is a host; a directory is on this one", where="--remote", fix=fix)
    path = unquote(parts.path)
    if not path:
        raise BadInputError("no folder is named", where="--remote", fix=fix)
    root = (base or Path.cwd()) / Path(path).expanduser()
    if (root / _TEMP).is_dir():  # ours; nobody gets at the objects in it, whatever theirs allow
        files.tighten(root, folder=True)
    return DirectoryRemote(root)


class DirectoryRemote:
    """`Remote` on a file system: a temporary file, fsync, ``link()`` (which refuses an existing name), fsync of the
    folder. Deadlines are looked at before each call; a file system that hangs can't be interrupted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"file:{root}"
        self._probed = False
        self.sign: bytes | None = None

    def location(self, key: str) -> str:
        """Where engines find an object: as its name is, nothing encoded, since they do not decode."""
        return f"file://{self._path(key).absolute().as_posix()}"

    def probe(self, *, leave: bool = True) -> None:
        """Proves that ``link()`` works and refuses an existing name; sweeps temporary files of killed processes. Its
        own never stay."""
        if self._probed and leave:
            return
        key = f"{_TEMP}/probe-{uuid.uuid4().hex}"
        try:
            first, second = self.create(key, b"probe\n"), self.create(key, b"")
        except StoreRefusedError as fault:
            if fault.code in ("EPERM", "ENOTSUP", "EOPNOTSUPP") and self._writable():
                raise StoreRefusedError(
                    "this file system has no hard links, so writes can't be create-only",
                    code=fault.code,
                    where=self.url,
                    fix="use a folder on another file system, or S3",
                ) from fault
            raise
        if (first, second) != ("created", "exists"):
            raise StoreRefusedError("creating a file twice is not refused here", where=self.url, fix="use another disk")
        self.delete([key])
        self._sweep()
        self._probed = True

    def _writable(self) -> bool:
        return os.access(self.root, os.W_OK)

    def _sweep(self) -> None:
        old = time.time() - _STALE_SECONDS
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.root / _TEMP):
                with contextlib.suppress(OSError):
                    if entry.stat().st_mtime < old:
                        os.unlink(entry.path)

    def create(self, key: str, body: bytes | Path) -> Literal["created", "exists"]:
        """See `ports.Remote.create`."""
        deadline.check(f"writing {key}")
        path = self._path(key)
        with self._faults(key):
            if path.exists():
                _sync(path.parent)  # whoever made it may have been killed right before this
                return "exists"
            made = self._folder(path.parent)
            temporary = self._written(body)
            try:
                os.link(temporary, path)
            except FileExistsError:
                _sync(path.parent)
                return "exists"
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
            for folder in {path.parent, *made}:
                _sync(folder)
        return "created"

    def put(self, key: str, body: bytes) -> None:
        """See `ports.Remote.put`."""
        deadline.check(f"writing {key}")
        path = self._path(key)
        with self._faults(key):
            made = self._folder(path.parent)
            temporary = self._written(body)
            os.replace(temporary, path)
            for folder in {path.parent, *made}:
                _sync(folder)

    def _written(self, body: bytes | Path) -> Path:
        """A temporary file that holds `body`, on the disk."""
        self._folder(self.root / _TEMP)
        path = self.root / _TEMP / uuid.uuid4().hex
        try:
            with open(files.create_privately(path), "wb") as out:
                if isinstance(body, Path):
                    with open(body, "rb") as source:
                        while block := source.read(_BLOCK):
                            out.write(block)
                else:
                    out.write(body)
                out.flush()
                os.fsync(out.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        return path

    def _folder(self, folder: Path) -> list[Path]:
        """Makes `folder`; returns which folders got a new entry by that."""
        return [Path(made).parent for made in files.make_private(folder)]

    def get(self, key: str, *, most: int | None = None) -> bytes | None:
        """See `ports.Remote.get`."""
        if most is not None and (size := self.size(key)) is not None:
            not_larger(self, key, size, most)
        deadline.check(f"reading {key}")
        with self._faults(key, reading=True):
            try:
                with files.opened(self._path(key)) as source:
                    return source.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """See `ports.Remote.get_range`."""
        deadline.check(f"reading {key}")
        with self._faults(key, reading=True):
            try:
                with files.opened(self._path(key)) as source:
                    source.seek(start)
                    return source.read(length)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def size(self, key: str) -> int | None:
        """See `ports.Remote.size`."""
        deadline.check(f"looking for {key}")
        with self._faults(key, reading=True):
            try:
                return self._path(key).stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def sizes(self, keys: Sequence[str]) -> dict[str, int]:
        """See `ports.Remote.sizes`."""
        found = {}
        for key in keys:
            with contextlib.suppress(DamagedArchiveError):  # what is no file has no size
                size = self.size(key)
                if size is not None:
                    found[key] = size
        return found

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """See `ports.Remote.list`."""
        deadline.check(f"listing {prefix}")
        folder = prefix.rpartition("/")[0]
        found: list[str] = []
        with self._faults(prefix):
            for key in self._walk(folder + "/" if folder else "", prefix, after):
                found.append(key)
                if len(found) >= limit:
                    break
        return found

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[str]:
        """Keys in byte order; a folder sorts as its name and a slash."""
        names: list[str] = []
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    key = folder + entry.name
                    if folder == "" and entry.name == _TEMP:
                        continue
                    if self._is_folder(entry, folder):
                        key += "/"
                        wanted = key.startswith(prefix) or prefix.startswith(key)
                        if wanted and (key > after or after.startswith(key)):
                            names.append(key)
                    elif key.startswith(prefix) and key > after:
                        names.append(key)
        except (FileNotFoundError, NotADirectoryError):
            return
        names.sort(key=lambda name: name.encode("utf-8", "surrogateescape"))
        for name in names:
            if name.endswith("/"):
                yield from self._walk(name, prefix, after)
            else:
                yield name

    def _is_folder(self, entry: os.DirEntry[str], folder: str) -> bool:
        """A link to a folder counts, unless it leads back to one that it lies in: that has no end."""
        try:
            if not entry.is_dir():
                return False
            if not entry.is_symlink():
                return True
            there, above = entry.stat(), Path(self.root, folder)
            return not any(os.path.samestat(there, one.stat()) for one in (above, *above.parents))
        except OSError:
            return False

    def delete(self, keys: Iterable[str]) -> None:
        """See `ports.Remote.delete`."""
        for key in keys:
            deadline.check(f"deleting {key}")
            with self._faults(key), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(self._path(key))

    def close(self) -> None:
        """Nothing is held open."""

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise BadInputError(f"'{key[:80]}' is no key of the archive", fix="look at the commit that names it")
        return self.root.joinpath(*parts)

    @contextlib.contextmanager
    def _faults(self, key: str, *, reading: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            if reading and fault.errno in _ODD:
                raise DamagedArchiveError(
                    f"{key} is no regular file ({fault.strerror})",
                    faults=(key,),
                    where=self.url,
                    fix="it is none that emq-ops wrote; look who did",
                ) from fault
            raise self._ours(fault, key) from fault

    def _ours(self, fault: OSError, key: str) -> ArchiveError | StoreUnreachableError:
        code = errno.errorcode.get(fault.errno or 0, "")
        said = f"{key}: {fault.strerror or fault}"
        if fault.errno in _FULL:
            return DiskFullError(
                f"no room on the disk of the remote directory ({said})",
                where=self.url,
                fix="make room there; nothing is trimmed meanwhile",
            )
        if fault.errno in _REFUSED or fault.errno == errno.ENOTSUP:
            return StoreRefusedError(
                f"the directory refuses ({said})", code=code, where=self.url, fix="check its path, rights and mount"
            )
        return StoreUnreachableError(f"the directory fails ({said})", where=self.url, fix="check the disk and mount")


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
