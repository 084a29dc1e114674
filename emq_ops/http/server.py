"""The listener below the pages: waitress, with bounds that no traffic gets past.

Connections, their age and their number a second are bounded, so that the passes keep descriptors and processor time
whatever is asked, half asked or drip-fed here.
"""

from __future__ import annotations

import logging
import resource
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer

from emq_ops.config.listening import address
from emq_ops.protocol.errors import EmqError

Say = Callable[..., None]


@dataclass(frozen=True)
class Bounds:
    """`connections` at once, of which none takes longer than `asking` seconds to send a whole request, is idle for
    longer than `idle` seconds or older than `age` seconds; `a_second`: connections taken a second."""

    connections: int = 64
    asking: float = 5.0
    idle: int = 5
    age: float = 30.0
    a_second: int = 100
    header_bytes: int = 16_384
    body_bytes: int = 65_536
    threads: int = 4

    def below_limit(self) -> int:
        """Connections at once, at most an eighth of the process's descriptors: the passes have the rest."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self.connections if soft == resource.RLIM_INFINITY else max(4, min(self.connections, soft // 8))


TELL_SECONDS = 60.0
OTHERS_WAIT = 0.5
"""Where all connections are taken, one that has sent no whole request for so long makes room."""


class _Listener(TcpWSGIServer):  # type: ignore[misc]
    """Waitress' listener, with a bound on age and on arrivals: drip-fed bytes renew its own bound, idleness."""

    def __init__(self, app: Any, bound: socket.socket, bounds: Bounds, say: Say) -> None:
        self._bounds, self._say, self._told_at = bounds, say, -TELL_SECONDS
        self._second = self._taken = 0
        limit = bounds.below_limit()
        adjustments = Adjustments(
            sockets=[bound],
            threads=bounds.threads,
            connection_limit=limit + 2,  # its own: the listening socket and its wake-up
            backlog=limit,
            channel_timeout=bounds.idle,
            cleanup_interval=0,
            asyncore_loop_timeout=1,
            asyncore_use_poll=True,
            max_request_header_size=bounds.header_bytes,
            max_request_body_size=bounds.body_bytes,
            inbuf_overflow=bounds.body_bytes * 2,  # nothing is written into files
            log_socket_errors=False,
            ident=None,
        )
        info = (bound.family, bound.type, bound.proto, bound.getsockname())
        super().__init__(app, adj=adjustments, _sock=bound, bind_socket=False, sockinfo=info)

    def readable(self) -> bool:
        """Whether one more connection is taken now."""
        ready = bool(super().readable())
        if not ready and self.accepting and time.monotonic() - self._told_at >= TELL_SECONDS:
            self._told_at = time.monotonic()
            self._say("http_crowded", connections=len(self.active_channels))
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._taken = second, 0
        return ready and self._taken < self._bounds.a_second

    def handle_accept(self) -> None:
        """Takes one."""
        self._taken += 1
        super().handle_accept()

    def maintenance(self, now: float) -> None:
        """Ends what is idle, asks for too long, or is old."""
        super().maintenance(now)
        asking = OTHERS_WAIT if self.in_connection_overflow else self._bounds.asking
        for channel in list(self.active_channels.values()):
            age = now - channel.creation_time
            half = channel.request is not None or not channel.total_outbufs_len
            if age > self._bounds.age or (not channel.requests and half and age > asking):
                channel.will_close = True


class HttpServer:
    """Serves an application on ``address:port`` in a thread of its own. `say` is told what operators should know, once
    a minute at most.

    Raises BadInputError for what is no address, EmqError for one that can't be listened on.
    """

    def __init__(
        self, listen: str, app: Any, say: Say = lambda _text, **_facts: None, bounds: Bounds = Bounds()
    ) -> None:
        self.listen = listen
        for name in ("waitress", "waitress.queue"):  # a line a request, where somebody means harm
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._socket = self._bind(*address(listen))
        self._server = _Listener(app, self._socket, bounds, say)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._stopping = False

    def _bind(self, host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            # It listens from here on: nobody is turned away, though the thread may still be starting.
            return socket.create_server((host, port), family=family)
        except (OSError, UnicodeError) as fault:
            raise EmqError(
                f"can't listen: {getattr(fault, 'strerror', None) or fault}",
                where=f"http.listen {self.listen}",
                fix="end what listens there, or name another address",
            ) from None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Begins to serve."""
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._server.run()
            except OSError:
                if not self._stopping:
                    time.sleep(1.0)  # out of descriptors: the passes have what there is
        self._server.task_dispatcher.shutdown(timeout=1)

    def stop(self) -> None:
        """Ends serving."""
        self._stopping = True
        closing: Any = self._server

        def end() -> None:
            closing.asyncore.close_all(closing._map, ignore_all=True)

        if self._thread.is_alive():
            closing.trigger.pull_trigger(end)  # by its own thread: nothing is closed below its wait
            self._thread.join(2.0)
        else:
            end()
