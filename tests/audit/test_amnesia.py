"""A server that comes back without anything, by commands alone: what it lost is told, though the queue is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import claims
from tests.audit.working import LONG_MS, failed, put
from tests.support.cli import Ran, emq
from tests.support.passing import dead_of
from tests.support.valkey import Valkey

SWEEP = ("sweep", "orders")
TRIM = ("trim", "orders", "--yes", "--keep", "100", "--no-archive")
PLAY = ("play", "sweep.yaml")


@pytest.fixture
def forgetful() -> Iterator[Valkey]:
    with Valkey() as valkey:
        yield valkey


def ops(valkey: Valkey, *argv: str) -> Ran:
    ran = emq(*argv, "--url", valkey.url)
    assert ran.code == 0, ran
    return ran


def told(valkey: Valkey, *argv: str) -> Any:
    return json.loads(ops(valkey, *argv, "--output", "json").out)


def in_flight(valkey: Valkey, count: int) -> list[str]:
    with connect(valkey.url) as server:
        put(Queue(server, "orders"), count)
        return [claim.job for claim in claims.claim_batch(Queue(server, "orders"), LONG_MS, count)]


@pytest.mark.parametrize("first", [SWEEP, TRIM, PLAY], ids=lambda argv: argv[0])
def test_a_pass_tells_what_vanished(first: tuple[str, ...], forgetful: Valkey, folder: Path) -> None:
    (folder / "config.yaml").write_text(f"server: {{url: '{forgetful.url}'}}\nqueues: {{orders: {{}}}}\n")
    (folder / "sweep.yaml").write_text("- {queues: orders, tasks: [{sweep: {}}]}\n")
    with connect(forgetful.url) as server:
        lost = [failed(Queue(server, "orders"), b"boom") for _ in range(3)]
    lost += in_flight(forgetful, 4)
    assert emq(*SWEEP).code == 0
    forgetful.restart()
    assert emq(*first).code == 0
    [cut] = told(forgetful, "audit", "restarts", "--state", "sqlite:///.emq/state.db")["interruptions"]
    assert (cut["kind"], cut["went_back"], cut["vanished"]) == ("restart", True, 7)
    assert cut["jobs"]["vanished"] == sorted(lost)
    with connect(forgetful.url) as server:
        assert dead_of(Queue(server, "orders")) == []
    events = told(forgetful, "audit", "job", lost[0])["events"]
    assert "vanished" in [event["what"] for event in events]


def test_a_queue_that_is_lost_whole_is_still_audited(forgetful: Valkey) -> None:
    lost = in_flight(forgetful, 2)
    ops(forgetful, *SWEEP)
    forgetful.restart()
    ops(forgetful, *SWEEP)
    with connect(forgetful.url) as server:
        failed(Queue(server, "mail"), b"boom")
        server.write("UNLINK", Queue(server, "orders").keys.lease)
    for argv in ((), ("orders",)):
        audit = told(forgetful, "audit", "dead", *argv)
        assert [row["job"] for row in audit["vanished"]] == sorted(lost)
        assert audit["dead"] == (0 if argv else 1)
    assert emq("audit", "dead", "orders", "--requeue", "--yes", "--url", forgetful.url).code == 4
    assert emq("audit", "dead", "ordres", "--url", forgetful.url).code == 4


def test_of_very_many_in_flight_it_is_said_that_there_were_more(forgetful: Valkey) -> None:
    in_flight(forgetful, 60)
    ops(forgetful, *SWEEP)
    forgetful.restart()
    ops(forgetful, *SWEEP)
    audit = told(forgetful, "audit", "restarts")
    assert [cut["vanished"] for cut in audit["interruptions"]] == [50]
    assert audit["notes"][0].startswith("orders: at least 50 vanished in the restart that ended 20")
