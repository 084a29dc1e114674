"""The trim with ``archive: true`` killed at every effect: nothing is lost, nothing is in the archive twice, and the
next pass ends as an undisturbed one. The oracle reads the bucket with plain pyarrow."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.faults.passes.test_kills import Scenario, _state_of, trimmed
from tests.faults.passes.zygote import QUEUE, PassZygote, archive_in, one_pass
from tests.support.oracle import Bucket, Seen
from tests.support.proxy import RespProxy, anything
from tests.support.valkey import Valkey

SEED = 5


@pytest.fixture(scope="module")
def zygote() -> Iterator[PassZygote]:
    with PassZygote() as opened:
        yield opened


def logged(server: Server, ledger: Any) -> None:
    """The dead of `trimmed`, with log lines."""
    trimmed(server, ledger)
    mail = Queue(server, QUEUE)
    for job in server.read("ZRANGE", mail.keys.dead, 0, -1):
        server.write("RPUSH", mail.keys.book(job.decode(), "logs"), b"first \xff", "second")


def rows(server: Server) -> dict[bytes, tuple[Any, ...]]:
    """Every job that is there: its row and its log lines, as an archived record has them."""
    keys = Queue(server, QUEUE).keys
    found = {}
    for job in server.read("ZRANGE", keys.dead, 0, -1):
        flat = server.read("HGETALL", keys.row(job.decode()))
        row = [(b"row:" + name, value) for name, value in zip(flat[::2], flat[1::2], strict=True)]
        lines = server.read("LRANGE", keys.book(job.decode(), "logs"), 0, -1)
        found[job] = (*sorted(row), *((b"log", line) for line in lines))
    return found


def archived(folder: Path) -> dict[bytes, tuple[Any, ...]]:
    """The same of the archive, each job once; without the facts, whose times differ from pass to pass."""
    records: list[Seen] = Bucket.folder(folder / "bucket").records(QUEUE, "dead")
    found = {}
    for record in records:
        job = record.pairs[0][1]
        assert job not in found, "a job is in the archive twice"
        row = sorted(pair for pair in record.pairs if pair[0].startswith(b"row:"))
        found[job] = (*row, *(pair for pair in record.pairs if pair[0] == b"log"))
    return found


@pytest.mark.parametrize("most", [14, pytest.param(10_000, marks=pytest.mark.soak)])
def test_killed_anywhere_nothing_is_lost_and_the_next_pass_ends_alike(
    most: int, server: Server, valkey: Valkey, zygote: PassZygote, tmp_path: Path
) -> None:
    """At every moment, or (`make test`) at some of each kind."""
    scenario = Scenario(server, tmp_path, logged)
    shelf = tmp_path / "archive"
    with RespProxy(valkey.url) as proxy:

        def fresh(name: str) -> str:
            shutil.rmtree(shelf, ignore_errors=True)
            shelf.mkdir()
            shutil.copy(tmp_path / "empty.db", shelf / "local.db")
            return scenario.fresh(name)

        shelf.mkdir()
        with archive_in(shelf, server):
            shutil.copy(shelf / "local.db", tmp_path / "empty.db")
        # The first time the scripts are loaded too, which no later run does.
        assert zygote.run(what="trim", url=proxy.url, state=fresh("first"), archive=str(shelf)) == 0
        state = fresh("undisturbed")
        before = rows(server)
        told = tmp_path / "effects"
        proxy.forget()
        assert zygote.run(what="trim", url=proxy.url, state=state, archive=str(shelf), effects=str(told)) == 0
        counts = {"request": proxy.count(anything), **json.loads(told.read_text())}
        assert set(counts) == {"request", "commit", "local", "file"}
        with open_ledger(state) as ledger, archive_in(shelf, server) as archive:
            one_pass("trim", server, ledger, archive=archive)  # nothing is left to do, and nothing changes
            end, kept = _state_of(server, ledger), archived(shelf)
        gone = before.keys() - rows(server).keys()
        assert len(gone) > 3
        assert kept == {job: before[job] for job in kept}
        assert len(kept.keys() - gone) == 1  # the one that is held was archived, and stays
        kills = [
            (what, when, at)
            for what, count in counts.items()
            for at in range(1, count + 1)
            for when in ("before", "after")
        ]
        kills = random.Random(SEED).sample(kills, min(most, len(kills)))
        print(f"\n{counts}: killed at {len(kills)} moments")
        died = 0
        for number, (what, when, at) in enumerate(kills):
            state = fresh(str(number))
            if what == "request":
                proxy.arm(f"kill_{when}", at=at, match=anything, pid=zygote.current)
            spec = {"what": "trim", "url": proxy.url, "state": state, "archive": str(shelf)}
            code = zygote.run(**spec, kill=[what, when, at])
            proxy.disarm()
            assert code in (0, -signal.SIGKILL), (what, when, at)
            died += code != 0
            gone = before.keys() - rows(server).keys()
            there = archived(shelf)
            assert all(there.get(job) == before[job] for job in gone), (what, when, at)
            with open_ledger(state) as ledger, archive_in(shelf, server) as archive:
                one_pass("trim", server, ledger, archive=archive)
                assert _state_of(server, ledger) == end, (what, when, at)
            assert archived(shelf) == kept, (what, when, at)
        assert died > 0.8 * len(kills)
