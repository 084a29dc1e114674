"""A setting written on the server, by the transition that is made for it."""

from __future__ import annotations

from typing import Any

from emq_ops.policy.scalars import parse_duration
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import control, repeat


def write(q: Queue, setting: str, value: Any) -> None:
    """Sets `setting` of the queue to `value` (None, False: unset). Writing the same twice is the same as once."""
    head, _, rest = setting.partition("/")
    if setting == "paused":
        (control.pause_queue if value else control.resume_queue)(q)
    elif setting in ("concurrency", "rate"):
        (control.set_concurrency if setting == "concurrency" else control.set_rate)(q, value)
    elif head == "repeatables":
        if value is None:
            repeat.cancel(q, rest)
        else:
            repeat.replace(q, rest, parse_duration(value["every"]), value["template"])
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
