"""The shape of a module (`emq_ops.playbook.modules` has the table of all of them).

A module reads facts and decides (`inspect`), then acts on what it decided (`act`). Check mode is `inspect` alone, so
what it predicts and what is done come from one place. The `Decision` is plain data: it is written to the ledger before
the first request that changes something, and a resumed run acts on it again instead of deciding anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import Decision, Result
from emq_ops.playbook.errors import wrong
from emq_ops.playbook.options import Option
from emq_ops.policy.words import did_you_mean
from emq_ops.syntax.errors import Position


class Module:
    """A module. Subclasses say what they are in the class variables and define `inspect` and, if they change anything,
    `act`."""

    name: ClassVar[str]
    summary: ClassVar[str]
    check: ClassVar[str]
    """What it can say in check mode."""
    options: ClassVar[tuple[Option, ...]] = ()
    returns: ClassVar[dict[str, str]] = {}
    adds: ClassVar[tuple[str, ...]] = ()
    """Those of `returns` that say how much was done, and so add up over several tries."""
    primary: ClassVar[str | None] = None
    """The option that a bare value means."""
    free: ClassVar[bool] = False
    """Whether it takes any keys (set_fact)."""
    acts: ClassVar[bool] = True
    """Whether it can change anything."""
    destructive: ClassVar[bool] = False
    """Whether jobs can go for good: asks first, refused on a protected queue."""
    reads: ClassVar[frozenset[str]] = frozenset()
    """What its prediction rests on, in the words of `foretold`."""
    moves: ClassVar[frozenset[str]] = frozenset()
    """What is another after it."""
    state: ClassVar[bool] = False
    """Whether it only sets a state, which may be set again at any time."""
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Sets of options of which one at most may be given."""
    needs_one: ClassVar[tuple[str, ...]] = ()
    """Options of which one at least must be given."""
    offline: ClassVar[bool] = False
    """Whether it touches no queue, so that threads would only cost."""

    def fetch(self, ctxs: Sequence[TaskContext]) -> list[Any] | None:
        """What `inspect` will want to see of each queue, in one flush (`TaskContext.fetched`); None: it asks itself."""
        return None

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """What there is to do. Changes nothing. Raises TaskFailure where it can't be done."""
        raise NotImplementedError

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Does it. `resumed`: an earlier try may have done part of it, or all; what that did counts as done now."""
        raise NotImplementedError

    def option(self, name: str, pos: Position) -> Option:
        """The option called `name`. Raises PlaybookError at `pos`."""
        for option in self.options:
            if option.name == name:
                return option
        known = [option.name for option in self.options]
        wrong(
            pos, f"module '{self.name}' has no option '{name}'", did_you_mean(name, known) if known else "it has none"
        )

    def check_given(self, given: Iterable[str], pos: Position) -> None:
        """Checks which options are given together. Raises PlaybookError at `pos`."""
        names = set(given)
        for option in self.options:
            if option.required and option.name not in names:
                wrong(pos, f"module '{self.name}' needs option '{option.name}'", f"{option.type.words}: {option.doc}")
        for group in self.exclusive:
            both = [name for name in group if name in names]
            if len(both) > 1:
                wrong(pos, f"options '{both[0]}' and '{both[1]}' exclude each other", "give one of them")
        if self.needs_one and not names & set(self.needs_one):
            wrong(pos, f"module '{self.name}' needs one of {', '.join(self.needs_one)}", "nothing never means 'all'")
