"""The watcher of an embedded server: stops it when nobody uses it any more, however they went.

Run as a detached process, ``python guardian.py FOLDER FD``; standard library only, so that it starts fast and stays
small. Every user of the server holds a shared lock on ``users.lock``, which the kernel takes away when the process
dies; the watcher waits for the exclusive one. The server itself holds ``server.lock`` for as long as it lives (it
inherits the open file), so whether it runs is never a guess about process ids.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import stat
import sys
import time

GRACE = 10.0
"""Seconds that the server may take to stop before it is killed; every write is on disk already (appendfsync always)."""


def lock_file(folder: str, name: str) -> int:
    """Opens (and makes) a lock file; not inherited by children."""
    return os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def try_lock(fd: int, how: int) -> bool:
    """Takes a lock if it is free."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def temporary_roots() -> list[str]:
    """Returns the folders that a short private folder may lie in, the preferred ones first."""
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return list(dict.fromkeys(os.path.realpath(root) for root in (*named, "/tmp", "/var/tmp") if root))


OWNER = "folder"
"""In a short private folder: names the server's folder that it belongs to."""


def open_if_ours(place: str, folder: str) -> int | None:
    """Opens a short private folder, if it is provably one that we made for the server of `folder`: named as ours,
    directly under a temporary root, no link, ours, closed to others, and saying so. Returns None for anything else: a
    record may have been planted. The caller closes it."""
    if not re.fullmatch("emq-[a-z0-9_]{8}", os.path.basename(place)):
        return None
    if os.path.realpath(os.path.dirname(place)) not in temporary_roots():
        return None
    try:
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        found = os.fstat(fd)
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700:
            owner = os.open(OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            with open(owner, "rb") as file:
                if file.read(4096) == os.fsencode(os.path.realpath(folder)):
                    return fd
    os.close(fd)
    return None


def _small(path: str) -> bytes:
    """What stands in a small file of ours; a pipe that somebody put there is not waited for. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("no regular file")
        return file.read(4096)


def read_record(folder: str) -> dict[str, str]:
    """Returns what the starter wrote down: the socket, and its private folder if it has one. A record whose socket
    lies anywhere else was not written by us, and counts as none."""
    try:
        found = json.loads(_small(os.path.join(folder, "record.json")))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or not isinstance(found.get("socket"), str):
        return {}
    place, name = os.path.split(found["socket"])
    private = open_if_ours(place, folder)
    if private is not None:
        os.close(private)
    with contextlib.suppress(OSError):
        if name == "s" and (private is not None or os.path.samefile(place, folder)):
            return {"socket": found["socket"], "temporary": "" if private is None else place}
    return {}


def _read_pid(folder: str) -> int | None:
    try:
        return int(_small(os.path.join(folder, "server.pid")))
    except (OSError, ValueError):
        return None


def clear(folder: str) -> None:
    """Removes what a server that is gone left behind, but for its data."""
    temporary = read_record(folder).get("temporary")
    private = open_if_ours(temporary, folder) if temporary else None
    if private is not None and temporary:
        if set(os.listdir(private)) <= {"s", OWNER}:  # else somebody else's things are in it
            for name in ("s", OWNER):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=private)
            with contextlib.suppress(OSError):
                os.rmdir(temporary)
        os.close(private)
    unfinished = (name for name in os.listdir(folder) if name.startswith(".emq-"))
    for name in ("record.json", "server.pid", "s", *unfinished):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # a folder is none of ours
            os.unlink(os.path.join(folder, name))


def _ask_to_stop(folder: str) -> None:
    """SHUTDOWN over the socket: at once, where a signal waits for the server's next tick."""
    address = read_record(folder).get("socket")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(2)
            sock.connect(address)
            sock.sendall(b"*1\r\n$8\r\nSHUTDOWN\r\n")
            sock.recv(1)


def stop(folder: str, server_lock: int) -> None:
    """Ends the server, if one lives, and clears up. The caller holds ``users.lock`` exclusively."""
    if not try_lock(server_lock, fcntl.LOCK_EX):
        _ask_to_stop(folder)
    began = time.monotonic()
    sent = None
    while not try_lock(server_lock, fcntl.LOCK_EX):
        wanted = signal.SIGTERM if time.monotonic() - began < GRACE else signal.SIGKILL
        pid = _read_pid(folder)
        if pid is not None and sent != wanted:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, wanted)
            sent = wanted
        time.sleep(0.002)
    clear(folder)
    fcntl.flock(server_lock, fcntl.LOCK_UN)


def main(folder: str, guard: int) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir("/")
    server = lock_file(folder, "server.lock")
    users = lock_file(folder, "users.lock")
    fcntl.flock(users, fcntl.LOCK_EX)
    stop(folder, server)
    # In this order: whoever gets past users.lock must see that no watcher is left.
    os.close(guard)
    os.close(users)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
