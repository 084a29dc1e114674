"""Rules about how queues stand, in the language of `when`, and what of them is to be told: pending, firing, resolved.

Values in, what changed out: who keeps the states and sends the words is elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from emq_ops.config.alert_conditions import OF_QUEUE, USUAL, condition
from emq_ops.ledger.alert_states import AlertState
from emq_ops.overview.look import QueueLook
from emq_ops.protocol.errors import one_line
from emq_ops.protocol.globs import matches
from emq_ops.syntax.errors import Position, SourceError

if TYPE_CHECKING:
    from emq_ops.syntax.expressions import Condition

SERVER = "*"
"""Where a rule stands that is about the server or the hosts, not about a queue."""
SHOWN = 3

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule, read and checked. `lasting_ms`: so long it must hold before it is told; `repeat_ms`: so often it is told
    again while it holds, None: never; `queues`: a queue or a glob."""

    name: str
    when: Condition
    lasting_ms: int = 0
    queues: str = "*"
    severity: str = "ticket"
    repeat_ms: int | None = None
    say: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names that it reads."""
        return tuple(sorted({path[0] for path in self.when.compiled.reads})) if self.when.compiled else ()

    @property
    def of_server(self) -> bool:
        """Whether it is told once, not queue by queue."""
        return self.reads == ("server",)


def usual(but: Iterable[str] = ()) -> list[AlertRule]:
    """The rules of `USUAL` without those named."""
    left = {name: fields for name, fields in USUAL.items() if name not in set(but)}
    mark = Position("built in", 1, 1)
    return [
        AlertRule(
            name, condition(fields["when"], mark), **{key: value for key, value in fields.items() if key != "when"}
        )
        for name, fields in left.items()
    ]


def values_of(look: QueueLook, *, held: bool, failures: int, drift: int | None) -> dict[str, Any]:
    """What rules read of one queue; None for what is not known yet."""

    def age(at_ms: int | None) -> int:
        return 0 if at_ms is None else max(0, look.now_ms - at_ms)

    counts = {name: getattr(look, name) for name in OF_QUEUE[:10]}
    return {
        **counts,
        "queue": {"name": look.queue},
        "oldest_waiting": age(look.oldest_ms),
        "oldest_lease": age(look.deadline_ms),
        "repeatable_overdue": age(look.repeat_ms),
        "archive_lag": look.lag_ms or 0,
        "paused": look.paused,
        "held": held,
        "failures": failures,
        "drift": drift,
    }


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """Something to tell: `state` is ``firing`` or ``resolved``; `again`: it was told before."""

    rule: AlertRule
    state: str
    queues: tuple[str, ...]
    again: bool = False
    facts: str = ""
    """The values that it read, where it is one queue."""

    @property
    def text(self) -> str:
        """In one line."""
        shown = ", ".join(map(one_line, self.queues[:SHOWN]))
        more = f" and {len(self.queues) - SHOWN:,} more" if len(self.queues) > SHOWN else ""
        where = "" if self.queues == (SERVER,) else f" on {shown}{more}"
        if self.state == "resolved":
            return f"{self.rule.name} is over{where}"
        still = "still " if self.again else ""
        say = f": {self.rule.say}" if self.rule.say else ""
        return f"{still}{self.rule.name}{where} ({self.rule.when.source}{self.facts}){say}"


@dataclass(slots=True)
class Judgement:
    """What is to be kept, forgotten and told. `faults`: rules that can't be told, and why."""

    put: list[AlertState] = field(default_factory=list)
    drop: list[AlertState] = field(default_factory=list)
    messages: list[AlertMessage] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)


Muted = Callable[[str, str], bool]


def judge(
    rules: Iterable[AlertRule], values: Mapping[str, Values], states: Iterable[AlertState], muted: Muted, now_ms: int
) -> Judgement:
    """What changed. `values`: of each queue that is judged here, `SERVER` among them where this host judges that;
    `states`: as they are kept, of any queue; where a rule reads what is not known (None) it stays as it is; `muted`:
    whether a rule may not be told of a queue now: it fires all the same, and is told when it may be."""
    out = Judgement()
    kept = {(state.rule, state.queue): state for state in states}
    for rule in rules:
        holding = _holding(rule, values, out.faults)
        fresh, again, over = [], [], []
        for queue, told in values.items():
            state = kept.pop((rule.name, queue), None)
            if any(told.get(name, 0) is None for name in rule.reads):
                continue
            if queue not in holding:
                if state is not None:
                    out.drop.append(state)
                    over += [queue] if state.told_ms is not None and not muted(rule.name, queue) else []
                continue
            now = state or AlertState(rule.name, queue, now_ms)
            if now.firing_ms is None and now_ms - now.since_ms >= rule.lasting_ms:
                now = replace(now, firing_ms=now_ms)
            if now.firing_ms is not None and not muted(rule.name, queue):
                if now.told_ms is None:
                    fresh.append(queue)
                    now = replace(now, told_ms=now_ms)
                elif rule.repeat_ms is not None and now_ms - now.told_ms >= rule.repeat_ms:
                    again.append(queue)
                    now = replace(now, told_ms=now_ms)
            if now != state:
                out.put.append(now)
        for queues, state_name, before in (
            (fresh, "firing", False),
            (again, "firing", True),
            (over, "resolved", False),
        ):
            if queues:
                facts = _facts(rule, values[queues[0]]) if state_name == "firing" and len(queues) == 1 else ""
                out.messages.append(AlertMessage(rule, state_name, tuple(queues), before, facts))
    names = {rule.name for rule in rules}
    out.drop += [state for (name, _), state in kept.items() if name not in names]
    return out


def _holding(rule: AlertRule, values: Mapping[str, Values], faults: dict[str, str]) -> set[str]:
    """The queues of which the rule holds. What reads the same is asked once."""
    reads, known, found = rule.reads, {}, set()
    for queue, told in values.items():
        if (queue == SERVER) != rule.of_server or (queue != SERVER and not matches(rule.queues, queue)):
            continue
        if any(told.get(name, 0) is None for name in reads):
            continue
        key = tuple(repr(told[name]) for name in reads if name in told)
        if key not in known:
            try:
                known[key] = rule.when.holds(told)
            except SourceError as fault:
                faults[rule.name], known[key] = str(fault), False
        if known[key]:
            found.add(queue)
    return found


def _facts(rule: AlertRule, told: Values) -> str:
    """The values that it read, as `` with dead 120``."""
    plain = [(name, told[name]) for name in rule.reads if name in OF_QUEUE]
    return f"; {', '.join(f'{name} {value:,}' for name, value in plain)}" if plain else ""
