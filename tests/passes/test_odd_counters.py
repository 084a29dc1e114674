"""A counter of settled jobs that is none: named and passed over; no sweep, trim, settlement or daemon waits for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import aside, claims, reads, settle
from tests.support.cli import emq
from tests.support.passing import add, dead_of, kill_row, stall
from tests.support.valkey import Valkey

Spoil = Callable[[Queue, str], object]
WHICH = ("metrics:completed", "metrics:failed")


def a_word(q: Queue, name: str) -> None:
    q.server.write("HSET", q.keys.base + name, "count", "many")


def too_large(q: Queue, name: str) -> None:
    q.server.write("HSET", q.keys.base + name, "count", "9" * 30)


def a_text(q: Queue, name: str) -> None:
    q.server.write("SET", q.keys.base + name, "many")


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "orders")


@pytest.mark.parametrize("spoil", [a_word, too_large, a_text])
def test_all_passes_go_on(q: Queue, valkey: Valkey, tmp_path: Path, spoil: Spoil) -> None:
    [lost], kept = stall(q), kill_row(q, 3)
    [spoil(q, name) for name in WHICH]
    words = ["--url", valkey.url, "--state", f"sqlite:///{tmp_path}/s.db"]
    for command in (
        ["sweep", "orders", "--max-stalled", "1", "--restart", "count"],
        ["trim", "orders", "--keep", "1", "--no-archive", "--yes"],
        ["play", "health-check.yaml", "-l", "orders"],
    ):
        ran = emq(*words, *command)
        assert (ran.code, ran.err.count("Traceback")) == (0, 0), (command, ran.err)
    assert dead_of(q) == [max([lost, *kept])]
    assert {name: aside.listing(q).get(name, "").split(":")[:2] for name in WHICH} == {n: n.split(":") for n in WHICH}
    q.server.write("UNLINK", q.keys.completed, q.keys.failed)
    stall(q)
    assert emq(*words, "sweep", "orders").code == 0
    assert aside.tidy(q) == len(WHICH)


@pytest.mark.parametrize("spoil", [a_word, too_large, a_text])
def test_a_job_is_settled_all_the_same(q: Queue, spoil: Spoil) -> None:
    add(q, 3)
    [spoil(q, name) for name in WHICH]
    taken = [claims.claim(q, 30_000) for _ in range(3)]
    first, second, third = (one for one in taken if one is not None)
    assert settle.complete(q, first.job, first.token)
    assert settle.retry(q, second.job, second.token, settle.Failure("boom", 0, 1)) is settle.Retried.DEAD
    assert settle.retry(q, third.job, third.token, settle.Failure("boom", 0, 5)) is settle.Retried.SCHEDULED
    counts = reads.counts(q)
    assert (counts.active, counts.dead, counts.schedule) == (0, 1, 1)
    assert aside.listing(q).keys() == set(WHICH)


def test_a_counter_that_counts_is_counted_on(q: Queue) -> None:
    add(q, 1)
    q.server.write("HSET", q.keys.completed, "count", "41")
    taken = claims.claim(q, 30_000)
    assert taken is not None
    settle.complete(q, taken.job, taken.token)
    assert q.server.read("HGET", q.keys.completed, "count") == b"42"
    assert aside.listing(q) == {}
