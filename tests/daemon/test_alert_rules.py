"""Alert rules: pending, firing, told once, told again, over; silent where somebody said so; one message a group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.config.alert_conditions import USUAL, condition
from emq_ops.daemon.alert_rules import SERVER, AlertRule, judge, usual, values_of
from emq_ops.daemon.rules import AlertRules, RuleFacts
from emq_ops.ledger import alert_states, alerts
from emq_ops.ledger.alert_states import AlertState, Silence
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.look import QueueLook, look_at_queues
from emq_ops.passes.events import Alerted, Event
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue
from emq_ops.syntax.errors import Position

MARK = Position("rules", 1, 1)
MINUTE = 60_000


def rule(when: str, name: str = "r", **fields: Any) -> AlertRule:
    return AlertRule(name, condition(when, MARK), **fields)


@pytest.fixture
def look(server: Server) -> QueueLook:
    """A queue with one waiting job."""
    enqueue.enqueue(Queue(server, "orders"), ids.mint(), b"x")
    [found] = look_at_queues(server, ["orders"])
    assert isinstance(found, QueueLook)
    return found


def known(looks: dict[str, QueueLook], now_ms: int, **changes: Any) -> RuleFacts:
    values: dict[str, Any] = {
        "looks": looks,
        "failures": {},
        "drift": {},
        "held": frozenset(),
        "quiet": lambda _queue: False,
        "queues": frozenset(looks),
        "server": {"memory": 0.0, "without_leader": 0, "overdue": 0},
        "of_server": True,
        "now_ms": now_ms,
    }
    return RuleFacts(**{**values, **changes})


class Rounds:
    """Rounds over one state, as several daemons would make them one after the other."""

    def __init__(self, ledger: Ledger, *rules: AlertRule) -> None:
        self.ledger, self.rules = ledger, rules
        self.told: list[Alerted] = []
        self.take_over()

    def take_over(self) -> None:
        """Another process goes on."""
        self._judging = AlertRules(self.ledger, self._emit)

    def _emit(self, event: Event) -> None:
        assert isinstance(event, Alerted)
        self.told.append(event)

    def look(self, facts: RuleFacts) -> list[str]:
        """What this round tells."""
        before = len(self.told)
        self._judging.look(self.rules, facts)
        return [event.text for event in self.told[before:]]


def dead(look: QueueLook, count: int, queue: str = "orders") -> dict[str, QueueLook]:
    return {queue: replace(look, queue=queue, dead=count)}


def test_pending_firing_again_over_and_a_take_over_tells_nothing_twice(ledger: Ledger, look: QueueLook) -> None:
    rounds = Rounds(ledger, rule("dead > 100", lasting_ms=5 * MINUTE, repeat_ms=60 * MINUTE, say="look at it"))
    assert rounds.look(known(dead(look, 100), 0)) == []
    assert alert_states.states(ledger) == []
    assert rounds.look(known(dead(look, 101), 0)) == []
    assert alert_states.states(ledger) == [AlertState("r", "orders", 0)]
    rounds.take_over()
    assert rounds.look(known(dead(look, 101), 5 * MINUTE - 1)) == []
    assert rounds.look(known(dead(look, 120), 5 * MINUTE)) == ["r on orders (dead > 100; dead 120): look at it"]
    rounds.take_over()
    assert rounds.look(known(dead(look, 120), 6 * MINUTE)) == []
    assert rounds.look(known(dead(look, 120), 65 * MINUTE)) == ["still r on orders (dead > 100; dead 120): look at it"]
    assert rounds.look(known(dead(look, 3), 66 * MINUTE)) == ["r is over on orders"]
    assert rounds.look(known(dead(look, 3), 67 * MINUTE)) == []
    assert alert_states.states(ledger) == []
    assert [one.kind for one in alerts.listing(ledger)] == ["r"] * 3
    assert rounds.told[0].details == {"state": "firing", "severity": "ticket", "queues": ["orders"], "count": 1}


def test_five_hundred_queues_are_one_message(ledger: Ledger, look: QueueLook) -> None:
    looks: dict[str, QueueLook] = {}
    for number in range(500):
        looks |= dead(look, 1, f"q{number:03}")
    rounds = Rounds(ledger, rule("dead > 0", queues="q*"), rule("dead > 0", "other", queues="x*"))
    assert rounds.look(known(looks, 0)) == ["r on q000, q001, q002 and 497 more (dead > 0)"]
    assert rounds.told[0].details["count"] == 500
    assert rounds.look(known(dict(list(looks.items())[:499]), 1, queues=frozenset(looks))) == []
    assert len(alert_states.states(ledger)) == 500  # the last is another daemon's matter now
    assert rounds.look(known(dict(list(looks.items())[:499]), 2)) == []
    assert len(alert_states.states(ledger)) == 499  # it is gone


def test_what_is_silent_is_told_at_the_end_if_it_holds_yet(ledger: Ledger, look: QueueLook) -> None:
    rounds = Rounds(ledger, rule("dead > 0"))
    number = alert_states.silence(ledger, Silence("r", "ord*", 0, 1000, "me", "known"))
    assert rounds.look(known(dead(look, 1), 0)) == []
    assert rounds.look(known(dead(look, 1), 1000)) == ["r on orders (dead > 0; dead 1)"]
    assert rounds.look(known(dead(look, 1), 1001, quiet=lambda queue: queue == "orders")) == []
    assert rounds.look(known(dead(look, 0), 1002, quiet=lambda queue: queue == "orders")) == []  # a window: not a word
    assert alert_states.end_silence(ledger, number)
    assert not alert_states.end_silence(ledger, number)


def test_a_rule_of_the_server_is_told_once_by_one_daemon(ledger: Ledger, look: QueueLook) -> None:
    rounds = Rounds(ledger, rule("server.memory > 90%"))
    full = {"memory": 0.95, "without_leader": 0, "overdue": 0}
    assert rounds.look(known(dead(look, 1), 0, of_server=False)) == []
    assert rounds.look(known(dead(look, 1), 0, server=full)) == ["r (server.memory > 90%)"]
    assert rounds.told[0].queue == SERVER
    assert rounds.look(known(dead(look, 1), 1, of_server=False)) == []
    assert rounds.look(known(dead(look, 1), 2)) == ["r is over"]


def test_a_rule_that_cannot_be_told_says_so_once_and_stops_no_other(ledger: Ledger, look: QueueLook) -> None:
    rounds = Rounds(ledger, rule("1 / dead > 0", "odd"), rule("waiting > 0"))
    told = rounds.look(known(dead(look, 0), 0))
    assert told[0] == "r on orders (waiting > 0; waiting 1)"
    assert told[1].startswith("the alert rule odd can't be told: ")
    assert rounds.look(known(dead(look, 0), 1)) == []


def test_what_is_not_known_yet_after_a_restart_ends_nothing(ledger: Ledger, look: QueueLook) -> None:
    rounds = Rounds(ledger, rule("drift > 0"))
    assert rounds.look(known({"orders": look}, 0, drift={"orders": 2})) == ["r on orders (drift > 0; drift 2)"]
    rounds.take_over()
    assert rounds.look(known({"orders": look}, 1, drift=None)) == []
    assert rounds.look(known({"orders": look}, 2, drift={"orders": 2})) == []
    assert rounds.look(known({"orders": look}, 3, drift={})) == ["r is over on orders"]


def test_ours_hold_by_themselves_and_are_switched_off_by_name(ledger: Ledger, look: QueueLook) -> None:
    rounds = Rounds(ledger, *usual(["drift_stands"]), rule("false", "drift_stands"))
    troubled = known(
        {"orders": look},
        0,
        failures={"orders": 3},
        drift={"orders": 2},
        server={"memory": 0.99, "without_leader": 4, "overdue": 0},
    )
    rounds.look(troubled)
    rounds.look(replace(troubled, now_ms=61 * MINUTE))
    assert {event.kind for event in rounds.told} == USUAL.keys() - {"drift_stands", "archive_behind"}


STEPS = st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.booleans()), max_size=30)


@given(STEPS, st.integers(0, 60), st.one_of(st.none(), st.integers(1, 60)))
def test_whatever_comes_nothing_is_told_twice_and_every_end_is_told(
    steps: list[tuple[int, bool, bool]], lasting: int, repeat: int | None
) -> None:
    one = rule("waiting > 0", lasting_ms=lasting, repeat_ms=repeat)
    now, states, since, open_ms = 0, list[AlertState](), None, None
    for passed, holds, muted in steps:
        now += passed
        values = {"q": {"waiting": int(holds)}}
        found = judge([one], values, states, lambda *_, silent=muted: silent, now)
        dropped = {state.rule for state in found.drop}
        states = found.put or ([] if dropped else states)
        since = (since if since is not None else now) if holds else None
        for message in found.messages:
            assert not muted
            if message.state == "resolved":
                assert open_ms is not None
                assert not holds
            else:
                assert since is not None
                assert now - since >= lasting
                assert message.again == (open_ms is not None)
                assert open_ms is None or (repeat is not None and now - open_ms >= repeat)
        told = [message.state for message in found.messages]
        assert len(told) <= 1
        due = since is not None and now - since >= lasting and not muted
        if due and open_ms is None:
            assert told == ["firing"]
        if not holds and open_ms is not None and not muted:
            assert told == ["resolved"]
        open_ms = now if told == ["firing"] else None if not holds else open_ms


def test_values_are_what_conditions_may_name(look: QueueLook) -> None:
    values = values_of(look, held=True, failures=1, drift=2)
    assert all(rule(f"{name} is defined").when.holds({**values, "server": {}}) for name in values if name != "queue")
    assert rule("queue.name matches 'ord*' and waiting == 1 and held and failures == 1 and drift == 2").when.holds(
        {**values, "server": {}}
    )
