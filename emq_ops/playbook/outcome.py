"""What became of a task on a queue, and the tally of a queue: plain data that the ledger keeps and renderers draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from emq_ops.database.records import AsRow
from emq_ops.playbook.decisions import CHANGE, UNKNOWN, Decision, Result

OK, CHANGED, SKIPPED, FAILED, STOPPED = "ok", "changed", "skipped", "failed", "stopped"
MAX_ITEMS = 10_000
"""Items that an outcome names; counts are always whole."""


@dataclass
class TaskOutcome:
    """One task on one queue. `status`: ok, changed, skipped, failed, or stopped (the play ended before it).

    `changed`: whether anything did, also where it failed; `result`: what `register` keeps; `facts`: variables it set;
    `count`, `items`, `diff`: as in Decision; `unknown`: check mode could not know; `bad_input`: it failed for a mistake
    in the playbook, which nothing rescues.
    """

    status: str = OK
    message: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    items: list[str] = field(default_factory=list)
    diff: list[tuple[str, Any, Any]] = field(default_factory=list)
    removals: int = 0
    unknown: bool = False
    bad_input: bool = False
    attempts: int = 1
    changed: bool = False
    plans: list[Decision] = field(default_factory=list)
    """What each item of a prediction would do; never stored."""

    def __post_init__(self) -> None:
        self.changed = self.changed or self.status == CHANGED

    @property
    def failed(self) -> bool:
        """Whether the queue can't go on from here."""
        return self.status in (FAILED, STOPPED)

    @property
    def removed(self) -> int:
        """How many jobs it took away."""
        return min(self.removals, self.count) if self.changed else 0

    @property
    def rescuable(self) -> bool:
        """Whether a ``rescue`` section may take over."""
        return self.status == FAILED and not self.bad_input

    def as_row(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "plans"}

    def kept(self) -> dict[str, Any]:
        """As `as_row`, without what is as it comes: thousands of them are written."""
        return {name: value for name, plain in _AS_IT_COMES.items() if (value := getattr(self, name)) != plain}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> TaskOutcome:
        """Back from `as_row` or `kept`."""
        return cls(**{**row, "diff": [tuple(line) for line in row.get("diff", ())]})


_AS_IT_COMES = TaskOutcome().as_row()


@dataclass
class RecapLine(AsRow):
    """A queue's line in the recap. `ok` counts changed tasks too, as Ansible does; `changed` counts those that failed,
    too, once they had changed something."""

    ok: int = 0
    changed: int = 0
    skipped: int = 0
    failed: int = 0
    rescued: int = 0
    unknown: int = 0

    def add(self, outcome: TaskOutcome) -> None:
        """Counts one outcome."""
        if outcome.status in (OK, CHANGED):
            self.ok += 1
            self.unknown += outcome.unknown
        elif outcome.status == SKIPPED:
            self.skipped += 1
        elif outcome.status == FAILED:
            self.failed += 1
        self.changed += outcome.changed


def skipped(message: str) -> TaskOutcome:
    """A task that did not run."""
    result = {"changed": False, "failed": False, "skipped": True, "msg": message, "count": 0}
    return TaskOutcome(SKIPPED, message, result)


def failed(message: str, seen: TaskOutcome | None = None, *, bad_input: bool = False) -> TaskOutcome:
    """A failure; `seen`: what there was before it."""
    before = seen.result if seen else {"changed": False, "skipped": False, "count": 0}
    result = {**before, "failed": True, "msg": message}
    outcome = seen or TaskOutcome()
    return replace(outcome, status=FAILED, message=message, result=result, bad_input=bad_input)


def as_changed(seen: TaskOutcome, message: str) -> TaskOutcome:
    """What found nothing to do, in a run that had done it before."""
    result = {**seen.result, "changed": True, "msg": message}
    if seen.failed:
        return replace(seen, result={**result, "msg": seen.message}, changed=True)
    return replace(seen, status=CHANGED, message=message, result=result)


def after_tries(last: TaskOutcome, earlier: Sequence[TaskOutcome], adds: Iterable[str]) -> TaskOutcome:
    """The outcome of a task that was tried several times: what any try changed, and the sums of their counts and of
    the results called `adds`."""
    if not any(one.changed for one in earlier):
        return last
    whole = as_changed(last, last.message)
    tries = [*earlier, last]
    sums = {"count": sum(one.count for one in tries)}
    sums |= {name: sum(one.result.get(name) or 0 for one in tries) for name in adds if name in last.result}
    whole.count, whole.result = sums["count"], {**whole.result, **sums}
    whole.items = [item for one in tries for item in one.items][:MAX_ITEMS]
    whole.diff = [line for one in tries for line in one.diff][:MAX_ITEMS]
    whole.removals = sum(one.removals for one in tries)
    return whole


def planned(plan: Decision) -> TaskOutcome:
    """What a plan alone comes to: nothing to do, or a prediction."""
    changed = plan.verdict == CHANGE
    result = {"changed": changed, "failed": False, "skipped": False, "msg": plan.message, "count": plan.count}
    return TaskOutcome(
        CHANGED if changed else OK,
        plan.message,
        {**plan.returns, **result},
        plan.returns.get("facts", {}),
        plan.count,
        plan.items[:MAX_ITEMS],
        plan.diff[:MAX_ITEMS],
        plan.removals,
        unknown=plan.verdict == UNKNOWN,
        plans=[plan],
    )


def done(result: Result, plan: Decision, attempt: int) -> TaskOutcome:
    """What a module did."""
    values = {
        **result.returns,
        "changed": result.changed,
        "failed": result.error is not None,
        "skipped": False,
        "msg": result.error or result.message,
        "count": result.count,
    }
    outcome = TaskOutcome(
        FAILED if result.error is not None else CHANGED if result.changed else OK,
        values["msg"],
        values,
        count=result.count,
        items=result.items[:MAX_ITEMS],
        diff=_happened(result, plan)[:MAX_ITEMS],
        attempts=attempt,
        changed=result.changed,
    )
    outcome.removals = plan.removals
    return outcome


def partly(parts: Sequence[Result]) -> Result:
    """What was done before a fault, all in all."""
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update({name: value for name, value in part.returns.items() if type(value) is int})
    items = [item for part in parts for item in part.items]
    returns = {**parts[-1].returns, **counts}
    return Result(any(part.changed for part in parts), sum(part.count for part in parts), items, returns=returns)


def _happened(result: Result, plan: Decision) -> list[tuple[str, Any, Any]]:
    """The diff of what was done, which may be less than what was decided."""
    if result.diff is not None:
        return result.diff
    if not result.changed:
        return []
    decided, did = set(plan.items), set(result.items)
    return [line for line in plan.diff if line[0] not in decided or line[0] in did]


def together(outcomes: Sequence[TaskOutcome]) -> TaskOutcome:
    """The outcome of a loop."""
    if all(outcome.status == SKIPPED for outcome in outcomes):
        none = skipped("no items" if not outcomes else outcomes[0].message)
        none.result["results"] = [outcome.result for outcome in outcomes]
        return none
    faults = [outcome for outcome in outcomes if outcome.failed]
    changed = any(outcome.changed for outcome in outcomes)
    status = FAILED if faults else CHANGED if changed else OK
    message = (
        faults[0].message
        if faults
        else "; ".join(dict.fromkeys(o.message for o in outcomes if o.message and o.status != SKIPPED))[:1000]
    )
    whole = TaskOutcome(status, message, changed=changed)
    whole.unknown, whole.bad_input = any(o.unknown for o in outcomes), any(o.bad_input for o in faults)
    for outcome in outcomes:
        whole.count += outcome.count
        whole.removals += outcome.removals
        whole.items += outcome.items
        whole.diff += outcome.diff
        whole.facts |= outcome.facts
        whole.plans += outcome.plans or [Decision()]
    whole.result = {
        "changed": changed,
        "failed": bool(faults),
        "skipped": False,
        "msg": message,
        "count": whole.count,
        "results": [outcome.result for outcome in outcomes],
    }
    return whole
