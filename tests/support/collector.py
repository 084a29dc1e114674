"""A server of somebody else's, which keeps what it is sent."""

from __future__ import annotations

import contextlib
import socket
import threading


class Collector:
    """`got`: what was sent; `connections`: how many came, with or without a word."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.got = b""
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._socket.accept()
                self.connections += 1
                with one, contextlib.suppress(OSError):
                    one.settimeout(2)
                    self.got += one.recv(65536)

    def close(self) -> None:
        self._socket.close()
