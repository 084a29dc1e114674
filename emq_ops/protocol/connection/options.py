"""What a connection can be told beside its URL."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from emq_ops.protocol.errors import EmqError

Renew = Callable[[], "ConnectionOptions"]
DEFAULT_VERSIONS = ("echomq:3.*",)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Settings of a connection. What is given here wins over the URL; None leaves it to the URL or the default.

    `username`, `password`: of the server; `sentinel_*`: of the Sentinels. `ca`, `cert`, `key`: PEM files; `verify`:
    whether the server's certificate and host name are checked (default yes). Times are in seconds: `connect_timeout`
    (5), `socket_timeout` (10, for one reply), `patience` (5): how long a command that was certainly not executed is
    sent again while a server loads, fails over or is busy. `client_name` as CLIENT LIST shows it, else made from
    `verb`. `accept_versions`: globs of wire versions. `server_binary`: the program behind ``embedded``. `renew`: gives
    users and passwords as they are now, for each new connection; certificates are read from their files each time.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool | None = None
    connect_timeout: float | None = None
    socket_timeout: float | None = None
    patience: float | None = None
    client_name: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    verb: str = "lib"
    accept_versions: tuple[str, ...] = DEFAULT_VERSIONS
    server_binary: str | None = None
    renew: Renew | None = field(default=None, repr=False, compare=False)

    def renewed(self) -> ConnectionOptions:
        """With user and password as they are now; as they were where that can't be told."""
        if self.renew is None:
            return self
        try:
            now = self.renew()
        except EmqError:
            return self
        return replace(self, username=now.username, password=now.password)

    def of_sentinels(self) -> ConnectionOptions:
        """As the Sentinels are to be asked."""
        renew = self.renew
        return replace(
            self,
            username=self.sentinel_username,
            password=self.sentinel_password,
            db=None,
            renew=None if renew is None else lambda: renew().of_sentinels(),
        )

    @property
    def connect_seconds(self) -> float:
        return 5.0 if self.connect_timeout is None else self.connect_timeout

    @property
    def socket_seconds(self) -> float:
        return 10.0 if self.socket_timeout is None else self.socket_timeout

    @property
    def patience_seconds(self) -> float:
        return 5.0 if self.patience is None else self.patience

    @property
    def name(self) -> str:
        """The client name: ``emq-ops:<verb>:<host>:<pid>`` unless given; no spaces, which the server refuses."""
        name = self.client_name or f"emq-ops:{self.verb}:{socket.gethostname()}:{os.getpid()}"
        return re.sub(r"[^!-~]", "_", name)
