"""The embedded server: a real Valkey of our own in a folder, shared by every command that runs there.

Four lock files order its life (``flock``: the kernel gives them back when a process dies, however it dies):

    start.lock    exclusive while a command joins or leaves: starts don't fight
    users.lock    shared by every user; exclusive by whoever stops the server
    server.lock   held by the server process itself: a second one never opens the same files
    guard.lock    held by the watcher (``guardian``): there is at most one

They are taken in that order. The last user to leave stops the server; where it was killed, the watcher does. Data is in
an append-only file, synced with every write.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from emq_ops.protocol.connection import guardian
from emq_ops.protocol.connection.link import ConnectionLost, Link
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.processes import find_binary, reap, spawn
from emq_ops.protocol.connection.replies import ErrorReply
from emq_ops.protocol.connection.topology import Topology
from emq_ops.protocol.connection.url import Address, Target
from emq_ops.protocol.deadline import check
from emq_ops.protocol.errors import BadInputError, UnreachableError, one_line
from emq_ops.protocol.files import make_private, write_privately

MAX_SOCKET_BYTES = 107
LOCK_SECONDS = 30.0
START_SECONDS = 120.0
"""A server may take that long to load its data."""


class Embedded(Topology):
    """The topology of ``embedded``: starts or joins the server when it is first needed, and again when it is gone."""

    def __init__(self, target: Target) -> None:
        assert target.folder is not None
        self._target = target
        self._folder = str(target.folder / "server")
        self._users: int | None = None
        self._node: Node | None = None
        self._sure = self._closed = False
        self._lock = threading.Lock()

    def node(self, slot: int | None) -> Node:
        with self._lock:
            if self._closed:  # or a late thread would start the server again
                raise UnreachableError("this connection was closed", where=self._target.where, fix="open another")
            if self._node is None or not self._sure:
                address = self._join()
                if self._node is None or self._node.address != address:
                    self._node = Node(address, self._target.options, self._target.where)
                self._sure = True
            return self._node

    def doubt(self, node: Node | None = None) -> None:
        self._sure = False
        if self._node is not None:
            self._node.drop()

    def at(self, address: Address) -> Node:
        return self.node(None)

    def close(self) -> None:
        """Leaves; the last one out stops the server."""
        with self._lock:
            self._closed = True
            if self._node is not None:
                self._node.drop()
                self._node = None
            users, self._users = self._users, None
            if users is None:
                return
            try:
                with self._starting():
                    os.close(users)
                    self._stop_if_last()
            except UnreachableError:
                os.close(users)  # somebody starts or leaves for very long: the watcher does it
            reap()

    def _stop_if_last(self) -> None:
        users = guardian.lock_file(self._folder, "users.lock")
        server = guardian.lock_file(self._folder, "server.lock")
        try:
            if guardian.try_lock(users, fcntl.LOCK_EX):
                guardian.stop(self._folder, server)
            elif not guardian.try_lock(users, fcntl.LOCK_SH):  # the watcher was faster: it is stopping the server
                with contextlib.suppress(UnreachableError):
                    self._wait_for(users, fcntl.LOCK_SH, "the embedded server is being stopped")
        finally:
            os.close(server)
            os.close(users)

    def _join(self) -> Address:
        reap()
        try:
            make_private(os.path.dirname(self._folder))
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)  # for us alone, whoever may read the rest
            self._check_folder()
            os.chmod(self._folder, 0o700)
            with self._starting():
                if self._users is None:
                    fd = guardian.lock_file(self._folder, "users.lock")
                    self._wait_for(fd, fcntl.LOCK_SH, "the embedded server is being stopped")
                    self._users = fd
                self._guard()  # before the server starts: there is no moment without
                return self._running() or self._start()
        except OSError as fault:
            raise UnreachableError(
                f"can't use the folder of the embedded server: {fault.strerror or fault}",
                where=self._folder,
                fix="check its permissions and the room on its disk",
            ) from fault

    def _check_folder(self) -> None:
        """Raises BadInputError for a folder that somebody else could have filled: a checkout, a shared folder."""

        def refuse(what: str, fix: str) -> NoReturn:
            raise BadInputError(f"not safe for the embedded server: {what}", where=self._folder, fix=fix)

        found = os.lstat(self._folder)
        if stat.S_ISLNK(found.st_mode):
            refuse("it is a link", "name the folder itself")
        if found.st_uid != os.geteuid():
            refuse("it belongs to somebody else", "name a folder of your own: server.url: embedded:DIR")
        if found.st_mode & 0o022:
            refuse("others may write to it", f"chmod 700 {self._folder}, if what is in it is yours")
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                    if not entry.is_symlink() and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                        continue
                    refuse(f"'{one_line(entry.name)}' in it is a link, or somebody else's", "remove it")

    @contextlib.contextmanager
    def _starting(self) -> Iterator[None]:
        fd = guardian.lock_file(self._folder, "start.lock")
        try:
            self._wait_for(fd, fcntl.LOCK_EX, "another command is starting the embedded server")
            yield
        finally:
            os.close(fd)

    def _wait_for(self, fd: int, how: int, what: str) -> None:
        end = time.monotonic() + LOCK_SECONDS
        while not guardian.try_lock(fd, how):
            check(self._target.where)
            if time.monotonic() > end:
                raise UnreachableError(
                    f"{what}, for {LOCK_SECONDS:g} s now", where=self._folder, fix="see who runs there"
                )
            time.sleep(0.005)

    def _running(self) -> str | None:
        """The socket of the server that lives here, once it answers; None when there is none."""
        fd = guardian.lock_file(self._folder, "server.lock")
        try:
            return self._answering(fd)
        finally:
            os.close(fd)

    def _answering(self, fd: int) -> str | None:
        end = time.monotonic() + START_SECONDS
        wait = 0.002
        while not guardian.try_lock(fd, fcntl.LOCK_EX):
            socket = guardian.read_record(self._folder).get("socket")
            if socket is not None and self._ready(socket):
                return socket
            check(self._target.where)
            if time.monotonic() > end:
                raise UnreachableError(
                    f"the embedded server runs but does not answer, for {START_SECONDS:g} s now",
                    where=self._folder,
                    fix="see server.log there",
                )
            time.sleep(wait)
            wait = min(wait * 1.5, 0.1)
        return None

    def _ready(self, socket: str) -> bool:
        link = Link(socket, self._target.options, self._target.where)
        try:
            [reply] = link.open().ask([("PING",)], 5)
        except (UnreachableError, ConnectionLost):
            return False
        finally:
            link.close()
        return not isinstance(reply, ErrorReply)

    def _start(self) -> str:
        """Starts the server; called with start.lock and users.lock held, and no server alive."""
        binary = find_binary(self._target.options.server_binary)
        guardian.clear(self._folder)
        socket, temporary = self._place_socket()
        record = {"socket": socket, "temporary": temporary, "program": binary}
        # Written before the start: if we are killed now, the next one still finds the server.
        write_privately(os.path.join(self._folder, "record.json"), json.dumps(record).encode("utf-8"))
        log = os.path.join(self._folder, "server.log")
        options = {
            "port": "0",
            "unixsocket": socket,
            "unixsocketperm": "700",
            "dir": self._folder,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "daemonize": "no",
            "maxmemory-policy": "noeviction",
            "pidfile": os.path.join(self._folder, "server.pid"),
            "logfile": log,
        }
        lock = guardian.lock_file(self._folder, "server.lock")
        try:
            self._wait_for(lock, fcntl.LOCK_EX, "a server of this folder is ending")
            spawn([binary, *(word for name, value in options.items() for word in (f"--{name}", value))], lock)
        finally:
            os.close(lock)  # from here on only the server holds it
        found = self._running()
        if found is None:
            raise UnreachableError(
                f"the embedded server did not start: {_last_words(log)}", where=self._folder, fix=f"see {log}"
            )
        return found

    def _place_socket(self) -> tuple[str, str]:
        """Where the socket goes: the folder, or a short private one where that path would be too long."""
        socket = os.path.join(self._folder, "s")
        if len(os.fsencode(socket)) <= MAX_SOCKET_BYTES:
            return socket, ""
        for base in guardian.temporary_roots():
            if len(os.fsencode(base)) + len("/emq-12345678/s") <= MAX_SOCKET_BYTES and os.access(base, os.W_OK):
                temporary = tempfile.mkdtemp(prefix="emq-", dir=base)
                write_privately(os.path.join(temporary, guardian.OWNER), os.fsencode(os.path.realpath(self._folder)))
                return os.path.join(temporary, "s"), temporary
        raise UnreachableError(
            "no temporary folder has a path short enough for a socket", where=self._folder, fix="set TMPDIR"
        )

    def _guard(self) -> None:
        """Makes sure that a watcher runs; it inherits its lock, so there is no moment without."""
        fd = guardian.lock_file(self._folder, "guard.lock")
        try:
            if guardian.try_lock(fd, fcntl.LOCK_EX):
                spawn([sys.executable, "-I", "-S", guardian.__file__, self._folder, str(fd)], fd)
        finally:
            os.close(fd)


def _last_words(log: str) -> str:
    try:
        lines = Path(log).read_text("utf-8", "replace").splitlines()
    except OSError:
        return "it left no log"
    return " / ".join(line.split("# ", 1)[-1].strip() for line in lines[-3:]) or "its log is empty"
