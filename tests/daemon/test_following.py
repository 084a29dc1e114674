"""What a running daemon takes over of a new revision, and what it says of the rest."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from emq_ops.daemon.alerting import Alerting
from emq_ops.daemon.daemon import Daemon
from emq_ops.daemon.telemetry import health
from emq_ops.ledger import requests, runs
from emq_ops.ledger.ledger import host_ms, open_ledger
from emq_ops.passes.events import Alerted, Event
from emq_ops.passes.frame.once import to_request
from emq_ops.passes.frame.order import Order
from emq_ops.passes.frame.stores import Stores
from emq_ops.policy.environment import Environment
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server, connect
from tests.support.collector import Collector
from tests.support.daemons import Site, site, wait_for
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{remote: {{url: "file:bucket"}}}}
{more}
queues:
  orders:
    stalled: {{every: {every}}}
    dead: {{every: 1h, keep: "{keep}"}}
  mail: {{stalled: {{every: {every}}}}}
  "bulk-*": {{optional: true, stalled: {{every: 1h}}, dead: {{every: 1h, keep: "{keep}"}}}}
"""


@dataclass
class Told:
    """A daemon in a thread of this process, and what it said."""

    daemon: Daemon
    said: list[Event]

    def names(self) -> list[str]:
        return [event.name for event in self.said]

    def last(self, name: str) -> dict[str, Any]:
        return next(event.facts() for event in reversed(self.said) if event.name == name)

    def wait_followed(self, number: int) -> None:
        wait_for(
            lambda: any(e.name == "revision_followed" and e.facts()["revision"] == number for e in list(self.said))
        )

    def passes(self) -> set[tuple[str, str]]:
        return {key for key in self.daemon.timers.times() if key[0] in ("orders", "mail")}


@contextlib.contextmanager
def running(here: Site, valkey: Valkey, env: Mapping[str, str]) -> Iterator[Told]:
    """A daemon on what was applied, that has begun."""
    said: list[Event] = []
    stop = threading.Event()
    with open_ledger(f"sqlite:///{here.folder}/state.db") as ledger, connect(valkey.url) as own:
        daemon = Daemon(own, ledger, lambda _revision: Stores(None, None), env, said.append)
        thread = threading.Thread(target=daemon.run, args=(stop,))
        thread.start()
        try:
            told = Told(daemon, said)
            wait_for(lambda: "daemon_started" in told.names() or not thread.is_alive())
            yield told
        finally:
            stop.set()
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def here(tmp_path: Path, valkey: Valkey, server: Server) -> Iterator[Site]:
    with site(tmp_path / "s", written(valkey)) as made:
        yield made


def written(valkey: Valkey, more: str = "", every: str = "1h", keep: str = "${KEEP}") -> str:
    return CONFIG.format(socket=valkey.socket, more=more, every=every, keep=keep)


def applied(here: Site, text: str, **env: str) -> int:
    here.write(text)
    here.env = {"KEEP": "5", **env}
    return int(here.json("apply", "--yes", "--allow-loss")["revision"])


WITHOUT_TRIM = {("orders", "stalled"), ("mail", "stalled"), ("orders", "compact"), ("orders", "verify")}


def test_a_variable_that_is_not_set_where_it_runs_stops_what_uses_it_alone(
    here: Site, valkey: Valkey, server: Server
) -> None:
    applied(here, written(valkey))
    server.write("HSET", "emq:{bulk-1}:metrics:completed", "count", 1)  # a queue that a glob takes, as it came later
    with running(here, valkey, {}) as told:
        assert told.passes() == WITHOUT_TRIM
        assert told.last("queue_refused")["queue"] in ("orders", "bulk-1")
        assert "the environment variable KEEP is not set" in told.last("queue_refused")["error"]
        number = applied(here, written(valkey, every="30m"))
        told.wait_followed(number)
        assert told.passes() == WITHOUT_TRIM
        assert "state_fault" not in told.names()
        number = applied(here, written(valkey, keep="${KEEP:-7}"))
        told.wait_followed(number)
        assert told.passes() == WITHOUT_TRIM | {("orders", "dead")}
    here.env = {}
    here.run("history")


def test_a_revision_that_can_not_be_taken_over_leaves_the_one_before(here: Site, valkey: Valkey) -> None:
    first = applied(here, written(valkey))
    with running(here, valkey, {"KEEP": "5"}) as told:
        window = "maintenance: [{cron: '0 3 * * *', for: \"${HOW_LONG}\"}]"
        second = applied(here, written(valkey, window, every="30m"), HOW_LONG="5m")
        wait_for(lambda: "revision_refused" in told.names())
        assert told.last("revision_refused")["revision"] == second
        assert "maintenance[0].for: expected a value in HOW_LONG" in told.last("revision_refused")["error"]
        assert told.daemon.revision.number == first
        assert (health(told.daemon)["ok"], health(told.daemon)["refused_revision"]) == (False, second)
        assert told.passes() == WITHOUT_TRIM | {("orders", "dead")}
        third = applied(here, written(valkey, "maintenance: [{cron: '0 3 * * * Europe/Berlin', for: 5m}]"))
        told.wait_followed(third)
        assert (health(told.daemon)["ok"], told.names().count("revision_refused")) == (True, 1)
    here.write(written(valkey, window))
    applied(here, written(valkey, window), HOW_LONG="5m")
    refused = pytest.raises(BadInputError, match=r"maintenance\[0\].for: expected a value in HOW_LONG")
    with refused, running(here, valkey, {"KEEP": "5"}):
        pass


def test_settings_are_followed_and_what_takes_a_restart_is_said(here: Site, valkey: Valkey) -> None:
    applied(here, written(valkey))
    with running(here, valkey, {"KEEP": "5"}) as told:
        number = applied(here, written(valkey, "daemon: {backoff: 7s, stop_within: 9s}"))
        told.wait_followed(number)
        assert (told.daemon.settings.stop_within, told.daemon.dispatcher.backoff_ms) == (9_000, 7_000)
        changed = "daemon: {lease: 3s}\nhttp: {listen: '127.0.0.1:0'}"
        applied(here, written(valkey, changed))
        wait_for(lambda: "restart_needed" in told.names())
        assert told.last("restart_needed")["sections"] == ["http", "daemon.lease"]
        assert [event.name for event in told.said if event.name == "restart_needed"] == ["restart_needed"]


def test_a_glob_of_a_later_revision_takes_the_queues_that_come(here: Site, valkey: Valkey, server: Server) -> None:
    more = '  "new-*": {optional: true, stalled: {every: 1h}}\n'
    applied(here, written(valkey))
    with running(here, valkey, {"KEEP": "5"}) as told:
        told.wait_followed(applied(here, written(valkey) + more))
        server.write("HSET", "emq:{new-1}:metrics:completed", "count", 1)
        told.daemon.hangup.set()
        wait_for(lambda: ("new-1", "stalled") in told.daemon.timers.times())


def test_what_the_state_remembers_is_what_the_config_says(here: Site, valkey: Valkey) -> None:
    day = 86_400_000
    applied(here, written(valkey))
    with running(here, valkey, {"KEEP": "5"}) as told:
        ledger = told.daemon.ledger
        run = runs.start(ledger, "sweep", "orders", holder="me")
        with ledger.write() as connection:
            runs.finish(connection, run, runs.DONE, counts={"dead": 1})
            connection.execute(runs.runs.update().values(ended_ms=host_ms() - 40 * day))
        told.daemon._prune()
        assert runs.get(ledger, run).status == runs.DONE
        text = written(valkey).replace('state.db"', 'state.db", retain: "${RETAIN}"')
        refused = applied(here, text, RETAIN="30d")
        wait_for(lambda: health(told.daemon)["refused_revision"] == refused)
        told.wait_followed(applied(here, text.replace("${RETAIN}", "30d")))
        told.daemon._prune()
        with pytest.raises(BadInputError, match="no run"):
            runs.get(ledger, run)


def test_alerts_go_where_the_revision_in_force_says_and_a_fault_of_one_is_told() -> None:
    failed: list[Event] = []
    alerting = Alerting({}, failed.append)
    event = Alerted("orders", "RUN", kind="burst", text="10 jobs stalled at once")
    alerting(event)  # nowhere to send it
    alerting.follow([{"url": "json://${NOT_SET}/x", "on": None}])
    alerting(event)
    wait_for(lambda: len(failed) == 1)
    alerting.follow([{"url": "json://${NOT_SET}/x", "on": ["cap"]}, {"url": "nosuch://x", "on": ["burst"]}])
    alerting(event)
    wait_for(lambda: len(failed) == 2)
    alerting.follow([])
    alerting(event)
    assert failed == [event, event]


def test_no_alert_goes_where_none_may_be_sent() -> None:
    failed: list[Event] = []
    collector = Collector()
    there = f"127.0.0.1:{collector.port}"
    env = Environment({"WHERE": there}, hosts=("*.ours.example",))
    event = Alerted("orders", "RUN", kind="burst", text="10 jobs stalled at once")
    alerting = Alerting(env, failed.append)
    alerting.follow([{"url": "json://${WHERE}/x", "on": None}])
    alerting(event)
    wait_for(lambda: failed == [event])
    assert collector.connections == 0
    alerting = Alerting(replace(env, hosts=(there,)), failed.append)
    alerting.follow([{"url": "json://${WHERE}/x", "on": None}])
    alerting(event)
    wait_for(lambda: collector.connections > 0)
    collector.close()


def test_a_request_that_a_leader_died_over_is_done_by_the_next(here: Site, valkey: Valkey) -> None:
    applied(here, written(valkey))
    with open_ledger(f"sqlite:///{here.folder}/state.db") as ledger:
        options = to_request(Order("orders", StalledPolicy()))
        request = requests.ask(ledger, "sweep", "orders", options, "a command")
        assert requests.take(ledger, request, "a daemon that was killed")
        with running(here, valkey, {"KEEP": "5"}):
            found = wait_for(lambda: (got := requests.get(ledger, request)) and got.over and got)
        assert (found.status, found.report["recovered"]) == (requests.DONE, 0)
        assert found.taken_by != "a daemon that was killed"
