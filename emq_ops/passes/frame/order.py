"""What goes into a pass and comes out of it: plain values, which every door and every pass share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a run would do now. `report`: the same in numbers (``status`` dry); `jobs`: whom it would touch, in order;
    `removals`: how many would go for good; `count`: how many it would touch, named or not; `moves`: from which state to
    which, in words."""

    report: Any
    jobs: tuple[str, ...] = ()
    removals: int = 0
    count: int = 0
    moves: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known before a run. `now`: a glance at this moment; `rest`: how things stood when the last run had
    nothing left to do, None where that is not known; `rest_s`: seconds since."""

    policy: Any
    now: Any
    rest: Any = None
    rest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a door asks for.

    `policy`: of the pass's policy type; `applied`: it is the config's or the applied revision's, not bounds of a
    caller's own. `target`: the name below the section where it is a mapping (a stream), else ''. `trigger`: command,
    daemon, playbook, request, once. `only`: ids that bound the run: it may touch fewer, never others. `force`: all that
    may go goes at once. `lease_ms`: the queue's longest job lease. `options`: more that this pass alone understands.
    `resumes`: the id of a run that ended early and goes on (passes on demand). `progress`: called with how many of how
    many; `failed`: called with the report, as far as it came, of a run that ends with a fault.
    """

    queue: str
    policy: Any
    target: str = ""
    trigger: str = "command"
    applied: bool = True
    only: Collection[str] | None = None
    force: bool = False
    lease_ms: int = 30_000
    options: Mapping[str, Any] = field(default_factory=dict)
    resumes: str = ""
    progress: Callable[[int, int], None] | None = None
    failed: Callable[[Any], None] | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """A cheap look: a read-only script without arguments, its keys, and what makes its reply facts. Many are asked in
    one flush, each pair of script and keys once."""

    script: str
    keys: tuple[str, ...]
    parse: Callable[[Any], Any]
