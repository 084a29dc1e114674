"""What a pass is: one object that every door reads, and the work behind it, imported when it is first run.

Light on purpose: whoever only reads files (the schema, `validate`) pays for no client, database or archive.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from emq_ops.passes.frame.order import Facts, Glance, Order, Prediction

if TYPE_CHECKING:
    from emq_ops.ledger.ledger import Ledger
    from emq_ops.passes.frame.context import Context
    from emq_ops.passes.frame.stores import Stores

Protected = Literal["runs", "as applied", "refused"]
"""What `protect: true` on a queue does to a pass: nothing; it refuses bounds of a caller's own; it refuses the pass."""


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

    def glance(self, queue: str, target: str) -> Glance | None:
        """Returns the look that `due` takes its facts from; None where only a run can tell."""
        return None

    def due(self, facts: Facts) -> bool:
        """Returns whether a run would find something to do."""
        return True

    def rest(self, before: Any, report: Any, policy: Any) -> Any:
        """Returns what to remember of a run that left nothing to do, as `Facts.rest`; else None. `before`: what a
        glance saw right before it."""
        return None

    def unheard(self, stores: Stores, wanted: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
        """Returns what to remember of those queues and targets (each with its policy) of which nothing was ever stored,
        as `Facts.rest`: a glance says whether there is anything now, and they need no first run."""
        return {}

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
    its report mean, where no table of the command line knows them; `of_archive`: it is on wherever a queue is archived,
    `archive:` may say its section for all queues, its first run comes within its interval, and by hand there are verbs
    below ``archive`` instead of a command and a module; `sets`: it sets one field of the wire and
    touches no job, so that neither a hold nor another state's lease keeps it from running.

    Without a section it is *on demand*: a person asks for each run. It takes no lease, since its scripts check of every
    job what they go by, and a run that ends early is taken up again by its id.
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
    of_archive: bool = False
    sets: bool = False

    @property
    def on_demand(self) -> bool:
        """Whether it runs only where somebody asks for it."""
        return not self.section

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
