"""Daemon processes whose wall clock is hours off, or is set while they run: it costs an interval, not hours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.daemons import Daemon, Site, site, wait_for
from tests.support.passing import kill_row, stall
from tests.support.postgres import Postgres
from tests.support.shifted import HOUR, ShiftedHost
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "{state}"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}, ship_after: 1s}}
daemon: {{lease: 3s, backoff: 500ms}}
queues:
  orders:
    stalled: {{every: 1s, max_stalled: 1, restart: count}}
    dead: {{every: 1s, keep: 3, archive: true}}
    streams: {{completions: {{every: 1s, keep: 3}}}}
"""
SECONDS = 30.0
"""Far more than an interval on a busy machine, and far less than the hours that a clock is off."""


class Host:
    """A host with a clock of its own, and what stands in the folder."""

    def __init__(self, here: Site, host: ShiftedHost, q: Queue) -> None:
        self.here, self.host, self.q = here, host, q
        self.told: list[dict[str, Any]] = []

    def up(self) -> Daemon:
        """A daemon of this host."""
        return self.here.up(start=self.host.start)

    def ps(self) -> list[dict[str, Any]]:
        """`ps` as this host tells it."""
        ran = self.host.run("-c", "config.yaml", "ps", "--output", "json", cwd=self.here.folder)
        assert ran.code == 0, ran.err
        return list(ran.json)

    def told_right(self, ps: Callable[[], list[dict[str, Any]]]) -> None:
        """Nothing is overdue or failed, and what is due next is due within an interval or so, by the real clock or
        that of this host. What was met at the moment of a step may be told once."""

        def told() -> bool:
            rows = self.told = [row for row in ps() if row["every"] == "1s"]
            nows = [datetime.now(UTC) + timedelta(seconds=shift) for shift in (0, self.host.shift)]
            instants = [datetime.fromisoformat(row[name]) for row in rows for name in ("last", "next")]
            near = all(min(abs((now - at).total_seconds()) for now in nows) < SECONDS for at in instants)
            return len(rows) == 3 and near and not any(row["failures"] or row["overdue_ms"] for row in rows)

        with contextlib.suppress(AssertionError):
            wait_for(told, SECONDS)
            return
        pytest.fail(f"{[{k: row[k] for k in ('task', 'last', 'next', 'overdue_ms', 'error')} for row in self.told]}")

    def works(self) -> None:
        """All three passes run within an interval or so."""
        stream = self.q.keys.stream("completions")
        stall(self.q)
        kill_row(self.q, 4)
        for _ in range(4):
            self.q.server.write("XADD", stream, "*", "job", "j")

        def done() -> bool:
            counts = reads.counts(self.q)
            return counts.active + counts.pending == 0 and counts.dead <= 3 and self.q.server.read("XLEN", stream) <= 3

        wait_for(done, SECONDS, f"passes, by a clock that is {self.host.shift} s ahead")


@pytest.fixture
def host(tmp_path: Path, valkey: Valkey, server: Server, state_url: str) -> Iterator[Host]:
    config = CONFIG.format(socket=valkey.socket, state=state_url)
    with site(tmp_path / "site", config) as here:
        here.run("apply", "--yes")
        yield Host(here, ShiftedHost(tmp_path / "host"), Queue(server, "orders"))


@pytest.fixture
def state_url(request: pytest.FixtureRequest, postgres: Postgres) -> str:
    return postgres.fresh() if getattr(request, "param", "") == "postgres" else "sqlite:///state.db"


BOTH = pytest.mark.parametrize("state_url", ["sqlite", "postgres"], indirect=True)


def test_a_clock_that_was_ahead_is_set_right_inside_a_daemon_and_another_takes_over(host: Host) -> None:
    host.host.shift = 5 * HOUR
    daemon = host.up()
    host.works()
    host.host.shift = 0
    host.works()
    assert [round(event["seconds"] / HOUR) for event in daemon.events("clock_stepped")] == [-5]
    host.told_right(lambda: host.here.json("ps"))
    host.host.shift = 5 * HOUR
    host.works()
    other = host.here.up()
    daemon.kill()
    host.works()
    host.told_right(lambda: host.here.json("ps"))
    other.stop()


@pytest.mark.soak(minutes=1)
@BOTH
@pytest.mark.parametrize("hours", [5, -5])
def test_steps_inside_a_daemon_across_a_take_over_and_a_restart(host: Host, hours: int) -> None:
    for first, then in ((0, hours), (hours, 0)):
        host.host.shift = first * HOUR
        daemon = host.up()
        host.works()
        host.told_right(host.ps)
        host.host.shift = then * HOUR
        host.works()
        host.told_right(host.ps)
        host.host.shift = first * HOUR
        host.works()
        daemon.stop()
        host.host.shift = then * HOUR
        daemon = host.up()
        host.works()
        host.told_right(host.ps)
        daemon.kill()


@pytest.mark.soak(minutes=1)
@pytest.mark.parametrize("state_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("hours", [5, -5])
def test_hosts_of_different_clocks_share_a_state(host: Host, hours: int) -> None:
    """What the one wrote, the other reads, and a command on a third: by the clock of the state that they share."""
    host.host.shift = hours * HOUR
    for up in (host.up, host.here.up, host.up):
        daemon = up()
        host.works()
        for ps in (host.ps, lambda: host.here.json("ps")):
            host.told_right(ps)
        daemon.kill()
