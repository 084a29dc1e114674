"""Stores and servers that misbehave: refusals, lost replies, half bodies, silence, restarts. Two drivers at once."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from emq_ops.protocol.server import Server, connect
from tests.faults.archive.world import Locals, World, asked, folder_store, s3_store
from tests.support.http_proxy import HttpProxy, creates
from tests.support.oracle import local_records
from tests.support.proxy import Match, RespProxy, anything, named, scripted
from tests.support.s3 import S3Server
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[HttpProxy]:
    with HttpProxy(s3.url) as proxy:
        yield proxy


@pytest.fixture
def in_s3(valkey: Valkey, server: Server, s3: S3Server, proxy: HttpProxy, tmp_path: Path) -> World:
    world = World(server, valkey.url, "mail", Locals(tmp_path), s3_store(s3, proxy))
    world.fill()
    return world


@pytest.fixture
def in_folder(valkey: Valkey, server: Server, tmp_path: Path) -> World:
    world = World(server, valkey.url, "mail", Locals(tmp_path), folder_store(tmp_path / "bucket"))
    world.fill()
    return world


PASSING: list[tuple[str, Match, dict[str, Any]]] = [
    ("answer", anything, {"status": 500, "times": 2}),
    ("answer", anything, {"status": 503, "times": 3}),
    ("answer", creates, {"status": 409, "times": 1}),
    ("cut_before", anything, {"times": 1}),
    ("cut_after", creates, {"times": 1}),
    ("cut_after", creates, {"times": 1, "at": 2}),
    ("cut_after", creates, {"times": 1, "at": 3}),
    ("half_reply", named("GET"), {"times": 1, "at": 2}),
    ("half_request", creates, {"times": 1, "at": 2}),
]


@pytest.mark.parametrize(("kind", "match", "more"), PASSING)
def test_bad_weather_passes(
    kind: str, match: Match, more: dict[str, Any], in_s3: World, proxy: HttpProxy, zygote: Zygote
) -> None:
    fault = proxy.arm(kind, match=match, **more)
    in_s3.run(zygote, "a")
    assert fault.fired
    in_s3.converged("a")


def test_a_store_that_never_answers_costs_the_deadline_and_nothing_else(
    in_s3: World, proxy: HttpProxy, zygote: Zygote
) -> None:
    proxy.arm("drop_reply", match=anything, times=10_000)
    told = in_s3.told(zygote, "a", timeout=1.5)
    [[name, _]] = told["errors"]
    assert name in ("DeadlineError", "StoreUnreachableError")
    [report] = told["reports"]
    assert (report["folded"], report["shipped"], report["trimmed"]) == (40, 0, 0)
    assert in_s3.in_stream() == in_s3.sent
    proxy.disarm()
    in_s3.run(zygote, "a")
    in_s3.converged("a")


def test_a_store_that_refuses(in_s3: World, proxy: HttpProxy, zygote: Zygote) -> None:
    body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
    proxy.arm("answer", match=anything, times=10_000, status=403, body=body)
    told = in_s3.told(zygote, "a")
    assert told["errors"][0][0] == "StoreRefusedError"
    assert "AccessDenied" in told["errors"][0][1]
    assert told["reports"][0]["trimmed"] == 0
    in_s3.nothing_lost()


CUTS = {("cut_before", 1), ("cut_after", 2), ("half_reply", 3), ("cut_before", 5), ("cut_after", 8)}
"""In `make test`: each kind, each place. The soak takes all pairs."""


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        pytest.param(*pair, marks=() if pair in CUTS else pytest.mark.soak)
        for pair in product(("cut_before", "cut_after", "half_reply"), (1, 2, 3, 5, 8))
    ],
)
def test_valkey_cuts_connections(kind: str, at: int, in_folder: World, zygote: Zygote) -> None:
    """A read is asked again; a trim whose reply is lost is unknown, and the next cycle looks."""
    with RespProxy(in_folder.url) as resp:
        fault = resp.arm(kind, at=at, match=asked)
        in_folder.told(zygote, "a", resp.url, cycles=2)
        assert fault.fired
    in_folder.nothing_lost()
    in_folder.run(zygote, "a")
    in_folder.converged("a")


def test_a_lost_reply_of_the_trim(in_folder: World, zygote: Zygote) -> None:
    with RespProxy(in_folder.url) as resp:
        resp.arm("cut_after", match=scripted("stream_trim"))
        told = in_folder.told(zygote, "a", resp.url)
    assert told["errors"][0][0] == "OutcomeUnknownError"
    in_folder.nothing_lost()
    in_folder.run(zygote, "a")
    in_folder.converged("a")


def test_valkey_restarts_and_loses_its_tail(tmp_path: Path, zygote: Zygote) -> None:
    """The server comes back without its newest entries; others come in their places. Both are kept."""
    with Valkey(appendonly="yes", appendfsync="always") as valkey, connect(valkey.url) as server:
        world = World(server, valkey.url, "mail", Locals(tmp_path), folder_store(tmp_path / "bucket"))
        world.fill(30)
        aof = next(valkey.dir.glob("appendonlydir/*incr.aof"))
        size = aof.stat().st_size
        world.fill(10)
        world.policy["keep"] = 100
        world.run(zygote, "a")
        assert len(world.archived()) == 40
        valkey.kill()
        with aof.open("r+b") as file:
            file.truncate(size)
        valkey.start()
        lost = world.sent[30:]
        del world.sent[30:]
        world.fill(5)  # the same ids and bytes as those that were lost
        server.write("XADD", world.key, "36-0", "other", "bytes")  # 36-0 was lost too, with other bytes
        other = world.in_stream()[-1]
        world.policy["keep"] = 2
        world.run(zygote, "a")
        assert world.archived() == sorted({*world.sent, *lost, other})
        assert len(world.in_stream()) == 2


def test_two_drivers_at_once_from_two_hosts(in_s3: World, zygote: Zygote) -> None:
    """Both read, ship and trim the same stream beside a writer, each with a database of its own."""
    for round_number in range(3):
        runs = [in_s3.start(zygote, host, cycles=3) for host in "ab"]
        in_s3.fill(30)
        assert [run.result()["errors"] for run in runs] == [[], []], round_number
        in_s3.nothing_lost()
    for host in "ab":
        in_s3.run(zygote, host)
        in_s3.converged(host)


@pytest.mark.parametrize("kills", [6, pytest.param(60, marks=pytest.mark.soak(minutes=1))])
def test_killed_again_and_again_beside_a_writer(kills: int, in_folder: World, zygote: Zygote) -> None:
    moments = random.Random(kills)
    over = threading.Event()
    in_folder.policy |= {"segment_bytes": 20_000, "batch": 50, "page": 25}

    def write() -> None:
        while not over.wait(0.005):
            in_folder.fill(2)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(kills):
            host = "ab"[number % 2]
            with RespProxy(in_folder.url) as resp:
                fault = resp.arm("hold", at=moments.randint(3, 25), match=asked)
                run = in_folder.start(zygote, host, resp.url, cycles=50)
                fault.wait()
                run.kill()
    finally:
        over.set()
        writer.join()
    in_folder.nothing_lost()
    for host in "ab":
        in_folder.run(zygote, host)
        in_folder.converged(host)


def test_c22_sigterm_in_a_batch_leaves_it_whole_or_untouched(in_folder: World, zygote: Zygote) -> None:
    """C22 (the archive's part): SIGTERM while a batch is on its way; the local database holds whole batches."""
    in_folder.policy |= {"keep": 1000, "batch": 10}
    with RespProxy(in_folder.url) as resp:
        fault = resp.arm("hold", at=5, match=named("XRANGE"))
        run = in_folder.start(zygote, "a", resp.url)
        fault.wait()
        run.signal(signal.SIGTERM)
        assert run.wait() == -signal.SIGTERM
    rows, _ = local_records(in_folder.locals.url("a"), "mail", "completions")
    assert rows == in_folder.sent[: len(rows)]
    assert len(rows) in (14, 28), "two pages are a batch"
    in_folder.policy["keep"] = 5
    in_folder.run(zygote, "a")
    in_folder.converged("a")
