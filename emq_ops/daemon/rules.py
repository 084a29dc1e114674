"""Alert rules in a daemon: judged now and then over what it knows by itself, kept in the state, told once a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.config.alert_conditions import condition
from emq_ops.config.models import AlertRuleSection
from emq_ops.config.policies import checked
from emq_ops.daemon.alert_rules import SERVER, AlertMessage, AlertRule, judge, usual, values_of
from emq_ops.deploy.document import Document
from emq_ops.ledger import alert_states
from emq_ops.ledger.alert_states import AlertState
from emq_ops.ledger.alerts import Alert, add_alert
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.look import QueueLook
from emq_ops.passes.events import Alerted, Emit
from emq_ops.syntax.errors import Position

LOOK_SECONDS = 15.0
MOST_NAMED = 50
"""So many queues the details of an alert name."""


def rules_of(document: Document, env: Mapping[str, str]) -> list[AlertRule]:
    """The rules of a revision, and those of ours that it does not replace. Raises BadInputError where a reference can't
    be resolved or a rule can't be told (one that was applied can)."""
    said = [
        checked(AlertRuleSection, section, env, f"alert_rules[{number}]")
        for number, section in enumerate(document.globals.get("alert_rules") or [])
    ]
    mine = [
        AlertRule(
            one.name,
            condition(one.when, Position(f"alert_rules[{number}]", 1, 1)),
            one.lasting,
            one.queues,
            one.severity,
            one.repeat,
            one.say or "",
        )
        for number, one in enumerate(said)
    ]
    return [*usual(rule.name for rule in mine), *mine]


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """What rules are judged by. `looks`, `failures` (in a row, of the task of the queue that has most), `drift`: of the
    queues that this daemon leads (None: not known yet); `held`: queues; `quiet`: whether a maintenance window is open
    for a queue; `queues`: all of the revision; `server`: the names of ``server``, and `of_server` whether this daemon
    judges the rules that are about them alone; `now_ms`: the server's clock."""

    looks: Mapping[str, QueueLook]
    failures: Mapping[str, int]
    drift: Mapping[str, int] | None
    held: frozenset[str]
    quiet: Callable[[str], bool]
    queues: frozenset[str]
    server: Mapping[str, Any]
    of_server: bool
    now_ms: int


class AlertRules:
    """Judges from one thread. What is told is one event a rule and round, however many queues it is about."""

    def __init__(self, ledger: Ledger, emit: Emit) -> None:
        self._ledger, self._emit = ledger, emit
        self._told_faults: set[str] = set()

    def look(self, rules: Sequence[AlertRule], known: RuleFacts) -> None:
        """One round by these rules. Raises what the ledger raises; nothing is told then, and the next round does it."""
        if not known.looks and not known.of_server:
            return
        values: dict[str, dict[str, Any]] = {}
        for queue, look in known.looks.items():
            failures = known.failures.get(queue, 0)
            drift = None if known.drift is None else known.drift.get(queue, 0)
            values[queue] = values_of(look, held=queue in known.held, failures=failures, drift=drift)
            values[queue]["server"] = known.server
        if known.of_server:
            values[SERVER] = {"server": known.server}
        silences = alert_states.silences(self._ledger, known.now_ms)

        def muted(rule: str, queue: str) -> bool:
            return known.quiet(queue) or any(one.covers(rule, queue) for one in silences)

        states = alert_states.states(self._ledger)
        found = judge(rules, values, states, muted, known.now_ms)
        gone = [state for state in states if state.queue != SERVER and state.queue not in known.queues]
        self._keep(found.put, [*found.drop, *gone], found.messages, known.now_ms)
        for name, text in found.faults.items():
            if text not in self._told_faults:
                self._told_faults.add(text)
                self._emit(Alerted("*", kind="rule_fault", text=f"the alert rule {name} can't be told: {text}"))

    def _keep(
        self, put: Iterable[AlertState], drop: Iterable[AlertState], messages: Iterable[AlertMessage], now_ms: int
    ) -> None:
        """The states and what is told of them are one transaction: whoever takes over tells nothing twice."""
        put, drop = list(put), list(drop)
        raised = [_alert(message, now_ms) for message in messages]
        if not (put or drop or raised):
            return
        with self._ledger.write() as connection:
            alert_states.keep(connection, put, drop)
            for one in raised:
                add_alert(connection, one)
        for one in raised:
            self._emit(Alerted(one.queue, None, kind=one.kind, text=one.text, details=one.facts))


def _alert(message: AlertMessage, now_ms: int) -> Alert:
    queue = message.queues[0] if len(message.queues) == 1 else SERVER
    facts = {
        "state": message.state,
        "severity": message.rule.severity,
        "queues": list(message.queues[:MOST_NAMED]),
        "count": len(message.queues),
    }
    return Alert(queue, message.rule.name, message.text, now_ms, facts)


def most_failures(failures: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Queue -> the most of its tasks' numbers; queues without any are left out."""
    found: dict[str, int] = defaultdict(int)
    for queue, count in failures:
        if count:
            found[queue] = max(found[queue], count)
    return found
