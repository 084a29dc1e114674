"""One connection to one node: a socket (TCP, TLS, unix), with raw replies and an exact account of what was sent.

It is not redis-py's, whose parser turns some error replies into lost connections and drops the first word of others,
whose timeouts start anew with every packet, whose commands reconnect silently, and whose import takes as long as a
command has.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

import hiredis

from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.replies import ErrorReply, reply_error
from emq_ops.protocol.connection.tls import wrap
from emq_ops.protocol.connection.url import Address
from emq_ops.protocol.deadline import check, within
from emq_ops.protocol.errors import BadInputError, EmqError, UnreachableError

Arg = str | bytes | int | float
Words = Sequence[Arg]
_MORE = object()
_CHUNK = 65_536


class ConnectionLost(Exception):
    """A connection failed. `unsent`: the last command certainly did not reach the server whole, so it was not executed
    (whole commands before it may have been). `slow`: there was no answer in time."""

    def __init__(self, reason: str, *, unsent: bool = False, slow: bool = False) -> None:
        super().__init__(reason)
        self.unsent = unsent
        self.slow = slow


class _Replies:
    """Hands out raw RESP2 values, and error replies as values too."""

    def __init__(self) -> None:
        self.sock: socket.socket | None = None
        self._pid = os.getpid()
        self._reader = hiredis.Reader()
        self._buffer = bytearray(_CHUNK)

    def begin(self, sock: socket.socket) -> None:
        """Reads from a socket from now on."""
        self.sock = sock
        self._reader = hiredis.Reader(replyError=ErrorReply, notEnoughData=_MORE, errors="backslashreplace")

    def end(self) -> None:
        """Closes the socket. Never raises."""
        sock, self.sock = self.sock, None
        if sock is None:
            return
        with contextlib.suppress(OSError):
            if os.getpid() == self._pid:  # else the parent of a fork would lose its connection, too
                sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            sock.close()

    def next(self, seconds: float | None) -> Any:
        """The next reply. Raises TimeoutError after `seconds`, OSError when the connection ended."""
        reply = self._reader.gets()
        end: float | None = None
        while reply is _MORE:
            sock = self.sock
            if sock is None:
                raise ConnectionResetError("closed")
            if seconds is not None and end is None:
                end = time.monotonic() + seconds
                bound(sock, seconds)
            else:
                bound(sock, None if end is None else end - time.monotonic())
            size = sock.recv_into(self._buffer)
            if size == 0:
                raise ConnectionResetError("the server closed the connection")
            self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]  # its stub knows no buffers
            reply = self._reader.gets()
        return reply

    def quiet(self) -> bool:
        """Whether the connection stands and nothing unread waits on it."""
        sock = self.sock
        if sock is None or self._reader.has_data() or (getattr(sock, "pending", None) and sock.pending()):  # type: ignore[attr-defined]  # of an SSLSocket
            return False
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return not poll.poll(0)


def bound(sock: socket.socket, seconds: float | None) -> None:
    """Sets the socket's timeout, unless it is that already (each change is a system call)."""
    if seconds is not None and seconds <= 0:
        raise TimeoutError("no answer in time")
    if sock.gettimeout() != seconds:
        sock.settimeout(seconds)


class Link:
    """A connection that was opened once and is never reopened. Not for several threads at once."""

    def __init__(self, address: Address, options: ConnectionOptions, where: str, *, tls: bool = False) -> None:
        self.address = address
        self.where = where
        self.pid = os.getpid()
        self._options = options
        self._replies = _Replies()
        self._tls = tls

    def open(self) -> Link:
        """Connects, and says who we are. Raises UnreachableError or DeadlineError: nothing was changed."""
        check(self.where)
        try:
            self._replies.begin(open_socket(self.address, self._options, tls=self._tls))
            self._handshake()
        except EmqError:
            self.close()
            raise
        except (OSError, ConnectionLost) as fault:
            self.close()
            check(self.where)
            raise UnreachableError(f"can't connect: {fault}", where=self.where, fix=_hint(fault)) from fault
        return self

    def _handshake(self) -> None:
        options = self._options.renewed()
        commands: list[Words] = []
        if options.password is not None:
            user = () if options.username is None else (options.username,)
            commands.append(("AUTH", *user, options.password))
        elif options.username is not None:
            raise BadInputError("a user without a password", where=self.where, fix="give the password too")
        commands.append(("CLIENT", "SETNAME", options.name))
        if options.db:
            commands.append(("SELECT", options.db))
        for command, reply in zip(commands, self.ask(commands, options.connect_seconds), strict=True):
            # A user without the right to CLIENT goes without a name.
            if isinstance(reply, ErrorReply) and not (command[0] == "CLIENT" and reply.code == "NOPERM"):
                raise reply_error(reply.text, self.where)
            if not isinstance(reply, ErrorReply) and reply != b"OK":
                raise UnreachableError("what answers is no Valkey", where=self.where, fix=_OTHER)

    @property
    def is_open(self) -> bool:
        return self._replies.sock is not None

    def usable(self) -> bool:
        """Whether an idle link may be used again: same process, still open, nothing unread."""
        return self.pid == os.getpid() and self._replies.quiet()

    def send(self, commands: Sequence[Words], seconds: float | None) -> None:
        """Sends commands in one flush. Raises ConnectionLost."""
        try:
            packed = b"".join([hiredis.pack_command(tuple(command)) for command in commands])  # type: ignore[arg-type]  # its stub asks for one-element tuples
        except UnicodeEncodeError as fault:
            raise BadInputError("text that is no UTF-8 can't be sent", where=self.where, fix="send bytes") from fault
        sock = self._replies.sock
        try:
            if sock is None:
                raise ConnectionResetError("closed")
            bound(sock, within(seconds))
            sock.sendall(packed)
        except OSError as fault:
            reason = self._last_words() or str(fault)
            self.close()
            raise ConnectionLost(reason, unsent=True, slow=isinstance(fault, TimeoutError)) from fault

    def _last_words(self) -> str | None:
        """What the server said before it closed the connection (too many clients ...)."""
        try:
            reply = self._replies.next(0.01)
        except (OSError, hiredis.HiredisError):
            return None
        return reply.text if isinstance(reply, ErrorReply) else None

    def receive(self, seconds: float | None) -> Any:
        """The next reply, an ErrorReply where it is one. Raises ConnectionLost."""
        try:
            return self._replies.next(within(seconds))
        except (OSError, hiredis.HiredisError) as fault:
            self.close()
            raise ConnectionLost(str(fault), slow=isinstance(fault, TimeoutError)) from fault

    def ask(self, commands: Sequence[Words], seconds: float | None) -> list[Any]:
        """The replies to all of `commands`, each within `seconds`. Raises ConnectionLost."""
        self.send(commands, seconds)
        return [self.receive(seconds) for _ in commands]

    def wait(self, seconds: float) -> Any | None:
        """The next unasked frame (a subscription's), or None when none came in time. Raises ConnectionLost."""
        try:
            return self._replies.next(within(seconds))
        except TimeoutError:
            return None
        except (OSError, hiredis.HiredisError) as fault:
            self.close()
            raise ConnectionLost(str(fault)) from fault

    def close(self) -> None:
        """Ends it. Never raises."""
        self._replies.end()


def open_socket(address: Address, options: ConnectionOptions, *, tls: bool) -> socket.socket:
    """Connects within `options.connect_seconds` and the caller's deadline. Raises OSError (ssl.SSLError is one)."""
    seconds = within(options.connect_seconds)
    if seconds is not None and seconds <= 0:
        raise TimeoutError("no time left to connect")
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(seconds)
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = socket.create_connection(address, timeout=seconds)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return wrap(sock, address[0], options) if tls else sock
    except BaseException:
        sock.close()
        raise


_OTHER = "check host and port: another program listens there, or it speaks TLS (rediss://)"


def _hint(fault: Exception) -> str:
    text = str(fault)
    if "Protocol error" in text:
        return _OTHER
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "give the CA that signed the server's certificate (ca=), and the host name that stands in it"
    if "SSL" in text or "certificate" in text.lower():
        return "check that the server speaks TLS on this port, and asks for no other client certificate"
    if "max number of clients" in text:
        return "raise maxclients, or close idle clients"
    return "check that the server runs and that the address is right"
