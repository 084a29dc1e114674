"""Alert rules: pending, firing, told once, told again, over; silent where somebody said so; one message a group."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.config.alert_conditions import OF_QUEUE, OF_SERVER, USUAL, condition
from emq_ops.config.models import HeartbeatSection
from emq_ops.daemon.alert_rules import SERVER, AlertRule, judge, usual, values_of
from emq_ops.daemon.heartbeat import Heartbeat
from emq_ops.daemon.rules import AlertRules, Known
from emq_ops.ledger import alert_states, alerts
from emq_ops.ledger.alert_states import AlertState, Silence
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.look import QueueLook, look_at_queues
from emq_ops.passes.events import Alerted, Event
from emq_ops.policy.environment import Environment
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue
from emq_ops.syntax.errors import Position
from tests.support.cli import emq
from tests.support.daemons import site, wait_for
from tests.support.valkey import Valkey

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


def known(looks: dict[str, QueueLook], now_ms: int, **changes: Any) -> Known:
    values: dict[str, Any] = {
        "looks": looks,
        "failures": {},
        "drift": {},
        "held": frozenset(),
        "quiet": lambda _queue: False,
        "queues": frozenset(looks),
        "server": {"memory": 0.0, "without_leader": 0, "overdue": 0},
        "now_ms": now_ms,
    }
    return Known(**{**values, **changes})


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

    def look(self, facts: Known) -> list[str]:
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
    assert rounds.look(known(dead(look, 1), 0, server=None)) == []
    assert rounds.look(known(dead(look, 1), 0, server=full)) == ["r (server.memory > 90%)"]
    assert rounds.told[0].queue == SERVER
    assert rounds.look(known(dead(look, 1), 1, server=None)) == []
    assert rounds.look(known(dead(look, 1), 2)) == ["r is over"]


def test_a_rule_that_cannot_be_told_says_so_once_and_stops_no_other(ledger: Ledger, look: QueueLook) -> None:
    rounds = Rounds(ledger, rule("1 / dead > 0", "odd"), rule("waiting > 0"))
    told = rounds.look(known(dead(look, 0), 0))
    assert told[0] == "r on orders (waiting > 0; waiting 1)"
    assert told[1].startswith("the alert rule odd can't be told: ")
    assert rounds.look(known(dead(look, 0), 1)) == []


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


def test_the_docs_list_the_names_and_our_rules() -> None:
    text = (Path(__file__).parents[2] / "docs/monitoring.md").read_text().partition("## Alerts")[2]
    cells = {
        name
        for line in text.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert cells == {*OF_QUEUE, *USUAL, "queue.name", *(f"server.{name}" for name in OF_SERVER)}


BASE = "queues: {orders: {stalled: {}}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alert_rules: [{name: a, when: 'ded > 1'}]", "2:31: unknown name 'ded' (did you mean 'dead'?)"),
        ("alert_rules: [{name: a, when: 'dead >'}]", "2:31: in the expression"),
        (
            "alert_rules: [{name: a, when: 'server.memry > 1'}]",
            "unknown name 'server.memry' (did you mean 'server.memory'?)",
        ),
        ("alert_rules: [{name: a, when: 'dead.x > 1'}]", "'dead' is a plain value"),
        ("alert_rules: [{name: a, when: 'dead > 1', for: soon}]", "alert_rules[0].for"),
        ("alert_rules: [{name: a b, when: 'dead > 1'}]", "alert_rules[0].name"),
        ("alert_rules: [{name: a, when: 'true'}, {name: a, when: 'true'}]", "alert_rules[1].name"),
        ("heartbeat: {url: 'ftp://x'}", "heartbeat.url"),
        ("heartbeat: {url: 'https://me:secret@x/y'}", "heartbeat.url"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(BASE + text + "\n")
    ran = emq("-c", file, "validate")
    assert ran.code == 4
    assert said in ran.err
    assert "Traceback" not in ran.err


class Listener:
    """Takes whatever is sent to it."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def _take(self) -> None:
                got.append((self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0))))
                self.send_response(200)
                self.end_headers()

            do_GET = do_POST = _take

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def test_a_heartbeat_beats_while_all_is_well_and_goes_nowhere_else(listener: Listener) -> None:
    well, failed = threading.Event(), list[str]()
    env = Environment({"PING": f"http://127.0.0.1:{listener.port}/beat"})
    beat = Heartbeat(well.is_set, env, failed.append)
    beat.follow(HeartbeatSection(url="${PING}", every=20))
    beat.follow(HeartbeatSection(url="${PING}", every=20))  # not well: it asks nothing
    well.set()
    wait_for(lambda: len(listener.got) > 2)
    assert {path for path, _ in listener.got} == {"/beat"}
    beat.follow(None)
    strange = Heartbeat(well.is_set, replace(env, hosts=("ours.example",)), failed.append)
    strange.follow(HeartbeatSection(url="${PING}", every=20))
    wait_for(lambda: failed)
    strange.follow(None)
    assert "may not be asked" in failed[0]
    assert len(failed) == 1


@pytest.mark.soak(minutes=2)
def test_a_daemon_tells_a_messenger_and_the_command_line_shows_and_silences(
    tmp_path: Path, valkey: Valkey, server: Server, listener: Listener
) -> None:
    q = Queue(server, "orders")
    text = (
        f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///state.db'}}\n"
        f"alerts: [{{url: 'json://127.0.0.1:{listener.port}/alert'}}]\n"
        f"heartbeat: {{url: 'http://127.0.0.1:{listener.port}/beat', every: 1s}}\n"
        "alert_rules:\n  - {name: waits, when: 'waiting > 1', severity: page, say: start workers}\n"
        "  - {name: other, when: 'waiting > 2'}\n"
        "queues: {orders: {stalled: {every: 1s}}}\n"
    )
    with site(tmp_path / "s", text) as here:
        here.run("alert", "silence", "nosuch", "--for", "1h", "--why", "x", code=4)
        here.run("apply", "--yes")
        assert here.json("alert", "silence", "other", "--for", "1h", "--why", "known")["rules"] == "other"
        assert here.json("alert", "test") == [
            {"alert": f"json://127.0.0.1:{listener.port}/alert", "taken": True, "error": None}
        ]
        for _ in range(3):
            enqueue.enqueue(q, ids.mint(), b"x")
        daemon = here.up()

        def sent() -> list[str]:
            return [json.loads(body)["message"] for path, body in listener.got if path == "/alert"]

        wait_for(lambda: "waits on orders (waiting > 1; waiting 3): start workers" in sent())
        rows = {row["rule"]: row for row in here.json("alert", "ls") if row["rule"] in ("waits", "other")}
        assert {name: row["state"] for name, row in rows.items()} == {"waits": "firing", "other": "firing"}
        assert (rows["other"]["told_ms"], rows["other"]["why"]) == (None, "known")
        assert any(path == "/beat" for path, _ in listener.got)
        server.write("DEL", q.keys.pending)
        wait_for(lambda: "waits is over on orders" in sent())
        assert not [one for one in sent() if one.startswith("other")]
        [silenced] = here.json("alert", "ls", "--silences")
        here.run("alert", "unsilence", str(silenced["id"]))
        here.run("alert", "unsilence", str(silenced["id"]), code=4)
        daemon.stop()
