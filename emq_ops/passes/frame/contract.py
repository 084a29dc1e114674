"""What a pass is: one object that every door reads, and the work behind it, imported when it is first run.

Light on purpose: whoever only reads files (the schema, `validate`) pays for no client, database or archive.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

if TYPE_CHECKING:
    from emq_ops.ledger.ledger import Ledger
    from emq_ops.passes.frame.context import Context

Protected = Literal["runs", "as applied", "refused"]
"""What `protect: true` on a queue does to a pass: nothing; it refuses bounds of a caller's own; it refuses the pass."""


class RunReport(Protocol):
    """What a run of a pass hands back. `status`: done, held, stopped (a guard refused), dry; `more`: the time ran out
    with work left; `notes`: what an operator should know."""

    status: str
    run: str | None
    notes: list[str]

    @property
    def more(self) -> bool: ...

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do and nothing to say."""
        ...

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        ...

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers: the stable JSON form."""
        ...


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
    `progress`: called with how many of how many; `failed`: called with the report, as far as it came, of a run that
    ends with a fault.
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
    progress: Callable[[int, int], None] | None = None
    failed: Callable[[Any], None] | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """A cheap look: a read-only script without arguments, its keys, and what makes its reply facts. Many are asked in
    one flush, each pair of script and keys once."""

    script: str
    keys: tuple[str, ...]
    parse: Callable[[Any], Any]


class Work:
    """What a pass does. It knows no door, no table and no renderer."""

    def report(self, order: Order) -> Any:
        """Returns an empty report of a run."""
        raise NotImplementedError

    def run(self, context: Context) -> None:
        """Does it, and tells it in `context.report`. Called again in a new life where a reply was lost."""
        raise NotImplementedError

    def predict(self, context: Context) -> Prediction:
        """Returns what a run would do now. Changes nothing."""
        raise NotImplementedError

    def glance(self, queue: str, target: str) -> Glance:
        """Returns the look that `due` takes its facts from."""
        raise NotImplementedError

    def due(self, facts: Facts) -> bool:
        """Returns whether a run would find something to do."""
        return True

    def rest(self, before: Any, report: Any, policy: Any) -> Any:
        """Returns what to remember of a run that left nothing to do, as `Facts.rest`; else None. `before`: what a
        glance saw right before it."""
        return None

    def limits(self, ledger: Ledger, queues: Sequence[str]) -> Any:
        """Returns what `settle_idle` needs from before the glance."""
        return None

    def settle_idle(self, ledger: Ledger, limits: Any, idle: Sequence[str]) -> set[str]:
        """Notes that runs on these queues would find nothing to do; returns those that must run all the same."""
        return set()


def _runs(_policy: Any) -> bool:
    return True


def _needs_no_stores(_policy: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass. `name`: as `runs ls` shows it; `section`: its key in the YAML; `many`: whether the section is a mapping
    name -> policy; `policy`: a frozen type with its defaults; `work`: ``module:Class`` of its `Work`; `summary`: one
    sentence for help texts.

    `observes`: whether a run starts from a look at the queue's jobs and notices interruptions. `needs_stores`: whether
    a run with this policy may wait for the archive's stores; `runs`: whether the daemon runs it with this policy;
    `rests`: whether a run is due wherever it is not known how the last one left things; `counted`: what the numbers of
    its report mean, where no table of the command line knows them.
    """

    name: str
    section: str
    policy: type[Any]
    work: str
    summary: str
    many: bool = False
    protected: Protected = "runs"
    observes: bool = True
    rests: bool = True
    needs_stores: Callable[[Any], bool] = _needs_no_stores
    runs: Callable[[Any], bool] = _runs
    counted: Mapping[str, str] = field(default_factory=dict)

    @property
    def loaded(self) -> Work:
        """The work behind it."""
        module, _, name = self.work.partition(":")
        return cast("Work", getattr(importlib.import_module(module), name)())

    def task(self, target: str = "") -> str:
        """The name of its task of a queue: ``stalled``, ``stream:completions``."""
        return f"{self.section.removesuffix('s')}:{target}" if self.many else self.section

    def run(self, context: Context) -> None:
        """As `Work.run`."""
        self.loaded.run(context)

    def predict(self, context: Context) -> Prediction:
        """As `Work.predict`."""
        return self.loaded.predict(context)

    def due(self, facts: Facts) -> bool:
        """As `Work.due`."""
        return self.loaded.due(facts)
