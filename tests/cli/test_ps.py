"""`ps`: what runs next, what is held, what stands in a window, and what the state knows without the server."""

from __future__ import annotations

import json
import re
from pathlib import Path

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.enqueue import enqueue
from tests.support.cli import emq


def test_ps_tells_when_a_cron_runs_first(site: Server) -> None:
    assert emq("apply", "--yes").code == 0
    rows = {row["task"]: row for row in json.loads(emq("ps", "--output", "json").out)}
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT0[12]:00:00Z", rows["dead"]["next"])
    assert rows["stalled"]["next"] == "at once"
    assert {row["overdue_ms"] for row in rows.values()} == {0, None}


INSTANT = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def test_ps_tells_what_is_held_until_when_and_by_whom(site: Server) -> None:
    assert emq("apply", "--yes").code == 0
    assert not {"held", "maintenance"} & set(emq("ps").out.splitlines()[0].split())
    held = json.loads(emq("hold", "orders", "--for", "1h", "--why", "incident 7", "--output", "json").out)
    window = json.loads(emq("maintenance", "start", "--for", "2h", "ord*", "--output", "json").out)
    rows = json.loads(emq("ps", "--output", "json").out)
    assert {row["task"] for row in rows} >= {"stalled", "dead"}
    for row in rows:
        assert (row["held_until_ms"], row["held_by"], row["held_why"]) == (
            held["until_ms"],
            held["holder"],
            "incident 7",
        )
        assert (row["maintenance_until_ms"], row["maintenance_by"]) == (window["end_ms"], window["holder"])
    ran = emq("ps")
    assert ran.out.splitlines()[0].split()[-2:] == ["held", "maintenance"]
    assert ran.err == "emq-ops: no daemon runs: nothing is done by itself (emq-ops up)\n"
    assert re.search(rf" until {INSTANT} ", ran.out)  # what follows may be folded
    assert "held_until_ms" in emq("ps", "--output", "csv").out.splitlines()[0].split(",")
    assert emq("release", "orders").err == ""
    assert emq("maintenance", "stop").code == 0
    assert "held" not in emq("ps").out
    assert "was not held" in emq("release", "orders").err


def test_ps_shows_what_the_state_knows_while_the_server_is_away(site: Server) -> None:
    assert emq("apply", "--yes").code == 0
    known = {row["task"] for row in emq("ps", "--output", "json").json}
    ran = emq("ps", "-c", "config.yaml", "--url", "unix:///nowhere/at/all", "--output", "json")
    assert (ran.code, {row["task"] for row in ran.json}) == (0, known)
    assert "leaders are not known" in ran.err


def test_ps_tells_of_holds_that_no_row_can_show(site: Server) -> None:
    """Of a queue that has no task, and before anything was applied."""
    enqueue(Queue(site, "mail"), ids.mint(), b"x")
    assert emq("hold", "mail", "--for", "1h", "--why", "moving").code == 0
    assert emq("maintenance", "start", "--for", "2h", "mail").code == 0
    for applied in (False, True):
        if applied:
            assert emq("apply", "--yes").code == 0
        told = emq("ps").err.splitlines()[1:]  # after that no daemon runs, or nothing was applied
        assert re.fullmatch(rf"emq-ops: mail: held until {INSTANT} by \S+ \(moving\)", told[0])
        assert re.fullmatch(rf"emq-ops: mail: in maintenance until {INSTANT} by \S+", told[1])
        assert len(told) == 2


def test_ps_tells_the_windows_of_the_applied_config(site: Server) -> None:
    config = Path("config.yaml")
    window = "maintenance: [{from: 2020-01-01T00:00:00Z, to: 2999-01-01T00:00:00Z}]\n"
    config.write_text(config.read_text() + window)
    assert emq("apply", "--yes").code == 0
    rows = json.loads(emq("ps", "--output", "json").out)
    assert {(row["maintenance_until_ms"], row["maintenance_by"]) for row in rows} == {(32_472_144_000_000, "config")}
    assert {row["held_until_ms"] for row in rows} == {None}
