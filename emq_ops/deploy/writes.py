"""Settings written on the server, each by the transition that is made for it; many in one flush."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from emq_ops.policy.scalars import parse_duration
from emq_ops.policy.triggers import parse_cron
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import Script, load
from emq_ops.protocol.server import Arg, Server
from emq_ops.protocol.transitions import control, repeat

Change = tuple[str, str, Any]
"""Queue, setting, value (None, False: unset)."""


class _Calls(Queue):
    """Takes down the transitions of a queue instead of running them."""

    __slots__ = ("taken",)

    def __init__(self, server: Server, name: str) -> None:
        super().__init__(server, name)
        self.taken: list[tuple[Script, Sequence[str], Sequence[Arg]]] = []

    def run(self, script: str, keys: Sequence[str], *args: Arg, readonly: bool = False) -> Any:
        self.taken.append((load(script), keys, args))
        return 1


def write(server: Server, changes: Iterable[Change]) -> list[EmqError | None]:
    """Sets every setting, in pipelines; in each place the error of one that was not written, or may not be. Each is one
    small script of its own; writing the same twice is the same as once."""
    calls = []
    for queue, setting, value in changes:
        taking = _Calls(server, queue)
        _write(taking, setting, value)
        [call] = taking.taken
        calls.append(call)
    return [reply if isinstance(reply, EmqError) else None for reply in server.run_each(calls)]


def _write(q: Queue, setting: str, value: Any) -> None:
    head, _, rest = setting.partition("/")
    if setting == "paused":
        (control.pause_queue if value else control.resume_queue)(q)
    elif setting in ("concurrency", "rate"):
        (control.set_concurrency if setting == "concurrency" else control.set_rate)(q, value)
    elif head == "repeatables":
        if value is None:
            repeat.cancel(q, rest)
        else:
            _declare(q, rest, value)
    elif head == "lanes":
        lane, _, what = rest.partition("/")
        if what == "paused":
            (control.pause_lane if value else control.resume_lane)(q, lane)
        elif what == "weight":
            control.weight_lane(q, lane, value)
        elif value is None:
            control.unlimit_lane(q, lane)
        else:
            control.limit_lane(q, lane, value)
    else:
        raise BadInputError(f"no setting '{setting}'")


def _declare(q: Queue, name: str, value: Any) -> None:
    lane = value.get("lane")
    if "cron" in value:
        cron = parse_cron(value["cron"], value.get("zone"))
        repeat.replace_cron(q, name, cron.line, cron.zone, value["template"], lane=lane)
    else:
        repeat.replace(q, name, parse_duration(value["every"]), value["template"], lane=lane)
