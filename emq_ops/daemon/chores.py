"""What a daemon does every now and then on its main thread. None may end the process; faults are told sparingly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from emq_ops.daemon import clock
from emq_ops.daemon.events import StateBack, StateFault
from emq_ops.passes.events import Emit
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import EmqError

SECONDS = 30.0
"""How long one chore may take."""
STUCK_SECONDS = 90.0
"""A chore ends within `SECONDS`, whatever hangs; where none did for so long, the process is past help."""
MOST_TOLD = 5
"""So many texts of one fault are told."""


@dataclass(slots=True)
class Chore:
    """Something done every `seconds`."""

    seconds: float
    do: Callable[[], None]
    next_at: float = 0.0


class Chores:
    """Does them. A chore's fault stands until that chore is done again: what only reads proves nothing about a write.
    However often it comes and goes, and whichever chores meet it, it is said once, until the last of them is done.
    `writes`: a chore that writes in any case, so that its being done ends a fault of any."""

    def __init__(self, emit: Emit, *, writes: Callable[[], None]) -> None:
        self._emit, self._writes = emit, _name(writes)
        self._faults: dict[str, str] = {}
        self._told: set[str] = set()
        self._turned_at = clock.steady()

    @property
    def fault(self) -> str | None:
        """What a chore met and stands yet, None where all is well. From any thread."""
        return next(iter(list(self._faults.values())), None)  # a copy: chores meet faults at the same time

    @property
    def turning(self) -> bool:
        """Whether the loop turns: what else is wrong, a new process would not mend. From any thread."""
        return clock.steady() - self._turned_at < STUCK_SECONDS

    def do_due(self, chores: Iterable[Chore]) -> None:
        """Does those whose time has come."""
        for chore in chores:
            now = self._turned_at = clock.steady()
            if now >= chore.next_at:
                chore.next_at = now + chore.seconds
                self.do(chore.do)

    def do(self, do: Callable[[], None]) -> None:
        """Does one. Raises nothing."""
        try:
            with deadline.deadline(SECONDS):
                do()
        except EmqError as fault:
            text = str(fault)
        except Exception as fault:  # noqa: BLE001 - no chore may end the daemon
            text = f"fault of emq-ops itself: {type(fault).__name__}: {fault}"
        else:
            if self._faults.pop(_name(do), None) is not None and not self._faults:
                self._told.clear()
                self._emit(StateBack("*"))
            return
        self._faults[_name(do)] = text
        self._faults.setdefault(self._writes, text)
        if text not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(text)
            self._emit(StateFault("*", error=text))


def _name(do: Callable[[], None]) -> str:
    name = str(getattr(do, "__name__", ""))
    return name if name.isidentifier() else f"{name} {id(do)}"  # lambdas are all called the same
