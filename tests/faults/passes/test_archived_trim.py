"""The trim with ``archive: true`` killed at every effect: nothing is lost, nothing is in the archive twice, and the
next pass ends as an undisturbed one. The oracle reads the bucket with plain pyarrow."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.faults.passes.run_pass import QUEUE, archive_in, one_pass
from tests.faults.passes.test_kills import PASS, Scenario, _state_of, trimmed
from tests.support.kills import WHOLE, kill_at, moments
from tests.support.oracle import Bucket, Seen
from tests.support.proxy import RespProxy
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

SEED = 5


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


@WHOLE
def test_killed_anywhere_nothing_is_lost_and_the_next_pass_ends_alike(
    whole: bool, server: Server, valkey: Valkey, zygote: Zygote, tmp_path: Path
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
        assert zygote.run(PASS, what="trim", url=proxy.url, state=fresh("first"), archive=str(shelf)) == 0
        state = fresh("undisturbed")
        before = rows(server)
        proxy.forget()
        counts = zygote.start(PASS, what="trim", url=proxy.url, state=state, archive=str(shelf)).result()
        kills = moments(counts, proxy, whole=whole)
        assert {kind for kind, _, _ in kills} - {"sync"} == {"request" if whole else "write", "commit", "local", "file"}
        with open_ledger(state) as ledger, archive_in(shelf, server) as archive:
            one_pass("trim", server, ledger, archive=archive)  # nothing is left to do, and nothing changes
            end, kept = _state_of(server, ledger), archived(shelf)
        gone = before.keys() - rows(server).keys()
        assert len(gone) > 3
        assert kept == {job: before[job] for job in kept}
        assert len(kept.keys() - gone) == 1  # the one that is held was archived, and stays
        if not whole:
            kills = random.Random(SEED).sample(kills, 12)
        print(f"\n{counts}: killed at {len(kills)} moments")
        died = 0
        for number, moment in enumerate(kills):
            spec = {"what": "trim", "url": proxy.url, "state": fresh(str(number)), "archive": str(shelf)}
            died += kill_at(moment, zygote, PASS, {"request": proxy}, **spec).wait() != 0
            gone = before.keys() - rows(server).keys()
            there = archived(shelf)
            assert all(there.get(job) == before[job] for job in gone), moment
            with open_ledger(spec["state"]) as ledger, archive_in(shelf, server) as archive:
                one_pass("trim", server, ledger, archive=archive)
                assert _state_of(server, ledger) == end, moment
            assert archived(shelf) == kept, moment
        assert died > 0.8 * len(kills)
