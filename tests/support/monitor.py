"""What a server really did, in its own order: MONITOR, the commands inside scripts included."""

from __future__ import annotations

import re
import socket
import threading
from typing import Self

from tests.support.valkey import Valkey

_WORDS = re.compile(rb'"((?:[^"\\]|\\.)*)"')


class Monitor:
    """Between entering and leaving, `lines` gathers every command: its words as text."""

    def __init__(self, valkey: Valkey) -> None:
        self.lines: list[list[str]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(valkey.socket))
        self._reader = self._socket.makefile("rb")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._valkey = valkey

    def __enter__(self) -> Self:
        self._socket.sendall(b"MONITOR\r\n")
        assert self._reader.readline() == b"+OK\r\n"
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._valkey.client() as client:
            client.echo("the end of the monitor")
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._reader.close()
        self._socket.close()

    def _run(self) -> None:
        for line in self._reader:
            words = [word.decode("latin-1") for word in _WORDS.findall(line)]
            if words == ["ECHO", "the end of the monitor"]:
                return
            self.lines.append(words)
