"""A runbook killed before and after every request and every commit, resumed, ends as one that was not."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger import holds, runs
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.playbook.runner import Ended
from emq_ops.protocol.server import Server
from tests.playbook.bench import Bench
from tests.playbook.test_cases import spelled
from tests.support.kills import kill_at, moments
from tests.support.proxy import RespProxy
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

PLAY = "tests.playbook.run_play"
RUNBOOK = """
- queues: orders
  handlers:
    - {name: go on, resume: }
  tasks:
    - {name: look, audit: , register: found}
    - {name: stop, pause: , notify: go on}
    - {name: some, requeue: {all: true, limit: 2, rate: 100000}, register: some}
    - {name: one, remove: {all: true, limit: 1, rate: 100000}}
    - {name: lapsed, reap: {limit: 1}}
    - {name: due, promote: {limit: 1}}
    - {name: each, limit_lane: {lane: "@G", limit: "{{ item }}"}, loop: [3, 2]}
    - block:
        - {name: breaks, fail: "{{ some.ids | length }}"}
      rescue:
        - {name: window, maintenance: {for: 1h}}
      always:
        - {name: lane, drain: {lane: "@G"}}
    - {name: told, assert: {that: "found.count == 5 and some.count == 2"}}
    - {name: called off, cancel: {ids: ["@X", "@Z"]}}
"""
GIVEN = {
    "orders": {
        "pending": ["X"],
        "dead": {"A": "x", "B": "stalled", "C": "x", "D": "x", "E": "x"},
        "active": {"H": -9000, "I": -8000},
        "schedule": {"P": -9, "Q": -8},
        "lanes": {"G": ["L", "M"]},
    }
}
PASSES = """
- queues: orders
  tasks:
    - {name: swept, sweep: {max_stalled: 1}, register: swept}
    - {name: trimmed, trim_dead: {keep: 2, age_by: minted, archive: false}}
    - {name: told, assert: {that: swept.dead == 2}}
"""
FAILING = """
- queues: orders
  handlers:
    - {name: go on, resume: {lane: "@G"}}
  tasks:
    - {name: look, audit: , register: found}
    - {name: hold, pause: {lane: "@G"}, notify: go on}
    - {name: some, requeue: {all: true, limit: 2, rate: 100000}, register: some}
    - {name: gate, wait_for: {paused: false, timeout: 1ms}}
    - {name: one, remove: {all: true, limit: 1, rate: 100000}}
    - {name: lane, drain: {lane: "@G"}}
    - {name: told, assert: {that: "found.count == 5 and some.count == 2"}}
"""
"""Fails at the gate while the queue is paused; its handler resumes the lane, and then the operator the queue."""


def _end(bench: Bench, ended: Ended) -> dict[str, Any]:
    """What must be the same: the keyspace, the recap, the maintenance windows."""
    now = bench.server.now_ms("orders")
    keys = bench.keyspace()
    for name in ("active", "schedule"):  # scores are of the moment at which the queue was written
        held = keys.get(f"emq:{{orders}}:{name}", {}).get("zset", {})
        held.update(dict.fromkeys(held, 0.0))
    windows = [w for w in holds.all_windows(bench.ledger) if w.end_ms > now]
    failures = [bench.message(name) for name, status in bench.outcomes() if status == "failed"]
    return {"failures": failures, "recap": ended.tallies["orders"].as_row(), "windows": len(windows), "keys": keys}


def _finish(bench: Bench, book: str) -> Ended:
    """What an operator types after a kill."""
    begun = [run for run in runs.latest(bench.ledger, kind="play") if run.status != runs.DONE]
    if not begun:
        return bench.play(Path(book).read_text())
    return bench.resume(begun[0].id)


@pytest.mark.parametrize("book", [RUNBOOK, PASSES, FAILING], ids=["runbook", "passes", "retry"])
def test_killed_anywhere(
    book: str, server: Server, valkey: Valkey, zygote: Zygote, tmp_path: Path, empty_state: Path
) -> None:
    _kill(book, server, valkey, zygote, tmp_path, empty_state, sample=6)


@pytest.mark.soak(minutes=2)
@pytest.mark.parametrize("book", [RUNBOOK, PASSES, FAILING], ids=["runbook", "passes", "retry"])
def test_killed_everywhere(
    book: str, server: Server, valkey: Valkey, zygote: Zygote, tmp_path: Path, empty_state: Path
) -> None:
    _kill(book, server, valkey, zygote, tmp_path, empty_state, sample=None)


def _kill(
    book: str,
    server: Server,
    valkey: Valkey,
    zygote: Zygote,
    tmp_path: Path,
    empty_state: Path,
    *,
    sample: int | None,
) -> None:
    path = tmp_path / "book.yaml"
    path.write_text(spelled(book))

    def fresh(name: str) -> tuple[dict[str, str], Ledger]:
        """A state and a queue as before; for FAILING after its failure, the cause mended."""
        for key in set(server.scan()):
            server.write("UNLINK", key)
        shutil.copy(empty_state, tmp_path / f"{name}.db")
        ledger = open_ledger(f"sqlite:///{tmp_path}/{name}.db")
        bench = Bench(server, ledger, tmp_path)
        bench.put("orders", {**GIVEN["orders"], "paused": book is FAILING})
        spec = {"state": f"sqlite:///{tmp_path}/{name}.db", "book": str(path)}
        if book is FAILING:
            failed = bench.play(path.read_text())
            assert (failed.status, bench.outcomes()[-1]) == ("failed", ("go on", "changed"))
            server.write("HDEL", "emq:{orders}:meta", "paused")
            spec["run"] = failed.run
        return spec, ledger

    with RespProxy(valkey.url) as proxy:
        spec, ledger = fresh("undisturbed")
        bench = Bench(server, ledger, tmp_path)
        wanted = _end(bench, bench.resume(spec["run"]) if "run" in spec else bench.play(path.read_text()))
        ledger.close()
        spec, ledger = fresh("counted")
        proxy.forget()
        counts = zygote.start(PLAY, url=proxy.url, **spec).result()
        kills = moments(counts, proxy, whole=sample is None)
        ledger.close()
        assert len(kills) > (20 if sample else 40)
        chosen = kills if sample is None else sorted(random.Random(7).sample(kills, sample))
        unfinished = 0
        for number, moment in enumerate(chosen):
            spec, ledger = fresh(str(number))
            code = kill_at(moment, zygote, PLAY, {"request": proxy}, url=proxy.url, **spec).wait()
            with ledger:
                bench = Bench(server, ledger, tmp_path)
                done = [run for run in runs.latest(ledger, kind="play") if run.status == runs.DONE]
                if code == 0 or done:
                    continue
                unfinished += 1
                assert _end(bench, _finish(bench, str(path))) == wanted, moment
        assert unfinished > 0.7 * len(chosen)
