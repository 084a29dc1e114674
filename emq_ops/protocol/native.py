"""Native twins: the commands of the EchoMQ module beside our scripts (docs/protocol.md, *Native twins*).

An `Executor` extends, keeps and sweeps leases by the one or the other. What it is made of is chosen by the user, never
guessed: a server without the module is an error of its own, not a silent fall back to other semantics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from emq_ops.protocol.errors import BadInputError, EmqError, IncompatibleError, ServerError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.queue import Queue, positive
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import flows, leases, recover
from emq_ops.protocol.transitions.leases import Extended
from emq_ops.protocol.transitions.recover import Swept

EXTEND = "EMQ.EXTEND"
STALLED_CHECK = "EMQ.STALLED.CHECK"
COMMANDS = (EXTEND, STALLED_CHECK)
ExecutorName = Literal["script", "native"]


class CommandExecutor(Protocol):
    """Who carries out what has a native twin. All durations in ms."""

    name: ExecutorName

    def extend(self, q: Queue, job: str, token: int, lease_ms: int) -> Extended:
        """As ``leases.extend``."""

    def keep(self, q: Queue, held: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
        """As ``leases.keep``."""

    def sweep(self, q: Queue, max_stalled: int, limit: int) -> Swept:
        """As ``recover.sweep``."""


class Scripts:
    """The scripts of ``lua/``."""

    name: ExecutorName = "script"

    def extend(self, q: Queue, job: str, token: int, lease_ms: int) -> Extended:
        return leases.extend(q, job, token, lease_ms)

    def keep(self, q: Queue, held: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
        return leases.keep(q, held, lease_ms)

    def sweep(self, q: Queue, max_stalled: int, limit: int) -> Swept:
        return recover.sweep(q, max_stalled, limit)


class Native:
    """The module's commands on one server. Asks it once which of them it has, and again only after it refused one (a
    failover to a node without the module)."""

    name: ExecutorName = "native"

    def __init__(self, server: Server) -> None:
        self._server = server
        self._known: frozenset[str] | None = None

    def available(self) -> frozenset[str]:
        """Which of COMMANDS the server has."""
        if self._known is None:
            replies = self._server.read("COMMAND", "INFO", *COMMANDS)
            self._known = frozenset(name for name, reply in zip(COMMANDS, replies, strict=True) if reply)
        return self._known

    def require(self) -> None:
        """Raises IncompatibleError unless the server has both commands."""
        for name in COMMANDS:
            self._require(name)

    def extend(self, q: Queue, job: str, token: int, lease_ms: int) -> Extended:
        """As ``leases.extend``; the row's ``lease_epoch`` is stamped too. ServerError for keys that do not fit."""
        self._require(EXTEND)
        tail = (job_id(job), positive(token, "token"), positive(lease_ms, "lease_ms"))
        try:
            return Extended(int(q.server.write(EXTEND, 2, q.keys.active, q.keys.row(job), *tail)))
        except ServerError as fault:
            raise self._explained(EXTEND, fault) from fault

    def keep(self, q: Queue, held: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
        """As ``leases.keep``; the rows' ``lease_epoch`` is stamped too."""
        self._require(EXTEND)
        try:
            return leases.keep_native(q, held, lease_ms)
        except ServerError as fault:
            raise self._explained(EXTEND, fault) from fault

    def sweep(self, q: Queue, max_stalled: int, limit: int) -> Swept:
        """As ``recover.sweep``, but a lease that is not of this life of the server is recovered without a count, and a
        grouped job among the lapsed refuses the whole call (StateError)."""
        self._require(STALLED_CHECK)
        keys = (q.keys.active, q.keys.pending, q.keys.dead)
        tail = (q.keys.base, positive(max_stalled, "max_stalled"), positive(limit, "limit"))
        try:
            recovered, dead = q.server.write(STALLED_CHECK, 3, *keys, *tail)
        except ServerError as fault:
            raise self._explained(STALLED_CHECK, fault) from fault
        for job in dead:
            flows.tell(q, job.decode("ascii"))  # the command knows nothing of parents
        return Swept([i.decode("ascii") for i in recovered], [i.decode("ascii") for i in dead])

    def _require(self, name: str) -> None:
        if name not in self.available():
            raise IncompatibleError(
                f"the server has no {name}",
                where=self._server.where,
                fix="load the EchoMQ module, or take executor: script",
            )

    def _explained(self, name: str, fault: ServerError) -> EmqError:
        """The error of a refused command: it may be refused because the server that answers now does not know it."""
        if fault.code != "ERR":
            return fault
        self._known = None
        if name in self.available():
            return fault
        return IncompatibleError(
            f"the server has no {name} any more", where=fault.where, fix="load the EchoMQ module there too"
        )


def executor(server: Server, name: str) -> CommandExecutor:
    """The executor of that name, ``script`` or ``native``. Raises BadInputError, and IncompatibleError where the server
    does not have the native commands."""
    if name == "script":
        return Scripts()
    if name != "native":
        raise BadInputError(f"no executor '{name}'", fix="script or native")
    native = Native(server)
    native.require()
    return native
