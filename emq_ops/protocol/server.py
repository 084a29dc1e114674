"""An open server: commands and transitions in, raw replies out, every fault one of our errors.

Replies are plain RESP2 values: ``bytes``, ``int``, ``None`` or lists of them; nothing is decoded or turned into a
dict (a dict loses the repeated field names of a stream entry). `read` may be repeated after a lost reply, since that
is harmless; `write` and `run` never are: a lost reply is an OutcomeUnknownError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import redis

from emq_ops.protocol import keyspace
from emq_ops.protocol.errors import WIRE_ERRORS, EmqError, ServerError
from emq_ops.protocol.scripts import Script

Arg = str | bytes | int | float


def reply_error(message: str, where: str) -> EmqError:
    """The error class for an error reply of the server, by its first word."""
    code = message.split(" ", 1)[0]
    wire = WIRE_ERRORS.get(code)
    if wire is not None:
        return wire(message, where=where)
    return ServerError(message, code=code, where=where)


class Server:
    """A connected server. Thread-safe: each call borrows a connection from a pool."""

    def __init__(self, client: redis.Redis, where: str) -> None:
        self._client = client
        self.where = where

    def read(self, *command: Arg) -> Any:
        """The reply to a command that changes nothing; sent again where its reply was lost."""
        return self._send(*command)

    def write(self, *command: Arg) -> Any:
        """The reply to a command that changes something; never sent twice."""
        return self._send(*command)

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Arg] = (), *, readonly: bool = False) -> Any:
        """The reply of one transition, sent by its SHA and loaded where the server does not know it."""
        verb = "EVALSHA_RO" if readonly else "EVALSHA"
        try:
            return self._send(verb, script.sha, len(keys), *keys, *args)
        except ServerError as fault:
            if fault.code != "NOSCRIPT":
                raise
        return self._send(verb.replace("SHA", ""), script.source, len(keys), *keys, *args)

    def run_many(
        self, script: Script, calls: Sequence[tuple[Sequence[str], Sequence[Arg]]], *, readonly: bool = False
    ) -> list[Any]:
        """Many calls of one transition in one flush. Each place holds the reply, or the EmqError of that call."""
        out: list[Any] = []
        for keys, args in calls:
            try:
                out.append(self.run(script, keys, args, readonly=readonly))
            except EmqError as fault:
                out.append(fault)
        return out

    def read_many(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """The replies of many harmless commands in one flush, in order. The first error is raised."""
        return [self.read(*command) for command in commands]

    def now_ms(self, queue: str) -> int:
        """The clock of the node that owns the queue's slot, unix ms."""
        seconds, micros = self.read_on(queue, "TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def read_on(self, queue: str, *command: Arg) -> Any:
        """As `read`, for a command without a key (TIME, INFO ...), on the node that owns the queue's slot."""
        return self._send(*command)

    def info(self, queue: str, section: str) -> dict[str, str]:
        """A section of INFO from the node that owns the queue's slot, as text."""
        text = self.read_on(queue, "INFO", section).decode("utf-8", "replace")
        pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
        return dict(pairs)

    def run_id(self, queue: str) -> str:
        """The run id (one life of the server process) of the node that owns the queue's slot."""
        return self.info(queue, "server")["run_id"]

    def scan(self, match: str = "*", *, count: int = 1000) -> Iterator[bytes]:
        """The keys of every primary that match, by bounded SCAN; a key may come twice."""
        cursor = b"0"
        while True:
            cursor, keys = self.read("SCAN", cursor, "MATCH", match, "COUNT", count)
            yield from keys
            if cursor == b"0":
                return

    def queues(self) -> list[str]:
        """The queues that have keys, sorted."""
        found = {keyspace.queue_of_key(key) for key in self.scan("emq:{*}:*")}
        return sorted(name for name in found if name is not None)

    def close(self) -> None:
        """Gives back every connection."""
        self._client.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, *command: Arg) -> Any:
        try:
            return self._client.execute_command(*command)
        except redis.exceptions.NoScriptError as fault:
            raise ServerError("NOSCRIPT " + str(fault), code="NOSCRIPT", where=self.where) from fault
        except redis.ResponseError as fault:
            raise reply_error(str(fault), self.where) from fault


def connect(url: str) -> Server:
    """Opens `url` (first form: ``redis://`` and ``unix://`` only)."""
    client = redis.Redis.from_url(url, protocol=2, retry=None)
    client.response_callbacks.clear()
    return Server(client, url)
