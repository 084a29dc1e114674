"""Beside others: a live daemon, another process that resumes, an operator who interrupts."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger import runs
from emq_ops.playbook.play import resume
from emq_ops.playbook.store import records
from emq_ops.playbook.store.recorder import TakenOverError
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server
from tests.playbook.bench import Bench, job
from tests.playbook.test_kill import PLAY
from tests.support.daemons import site
from tests.support.proxy import RespProxy, scripted
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote


def test_a_trim_through_a_daemon_removes_none_but_those_named(
    tmp_path: Path, valkey: Valkey, server: Server, empty_state: Path
) -> None:
    config = f"""
server: {{url: "unix://{valkey.socket}"}}
state: {{url: "sqlite:///state.db"}}
queues: {{orders: {{stalled: {{every: 1h}}, dead: {{every: 1h, keep: 1000, archive: false}}}}}}
"""
    with site(tmp_path / "s", config) as here:
        (here.folder / "state.db").write_bytes(empty_state.read_bytes())
        bench = Bench(server, None, tmp_path)  # type: ignore[arg-type]  # the command opens its own ledger
        bench.put("orders", {"dead": dict.fromkeys("ABCDE", "x")})
        here.run("apply", "--yes", "--allow-loss")
        daemon = here.up()
        ids = f"[{job('B')}, {job('D')}]"
        book = bench.write(
            f"- {{queues: orders, tasks: [{{trim_dead: {{keep: 0, archive: false, ids: {ids}}}}}, {{sweep: }}]}}\n"
        )
        document = here.json("play", book, "--yes")
        assert document["recap"]["orders"]["changed"] == 1
        assert bench.seen("orders") == {"dead": ["A", "C", "E"], "rows": 3}
        # The daemon's own trim may have come first; it lets go of nothing.
        trims = [row for row in here.json("runs", "ls") if row["kind"] == "trim"]
        assert [row["trigger"] for row in trims if row["counts"].get("removed")] == ["request"]
        daemon.stop()


FIVE = """
- queues: orders
  tasks:
    - {name: one, pause: }
    - {name: two, requeue: {all: true, limit: 2, rate: 100000}}
    - {name: three, limit_lane: {lane: "@G", limit: 2}}
    - {name: four, drain: {lane: "@G"}}
    - {name: five, resume: }
""".replace("@G", "GRP0SSBKAh61tG")


def test_c17_killed_in_step_2_is_looked_at_again_and_nothing_is_done_twice(
    bench: Bench,
    valkey: Valkey,
    tmp_path: Path,
    zygote: Zygote,
) -> None:
    bench.put("orders", {"dead": dict.fromkeys("ABCDE", "x")})
    book = bench.write(FIVE)
    bench.server.write("SCRIPT", "LOAD", load("act_requeue").source)
    with RespProxy(valkey.url) as proxy:
        # StepRecord 2 takes effect, and the process dies before it hears of it.
        proxy.arm("kill_after", match=scripted("act_requeue"), pid=zygote.pid)
        code = zygote.run(PLAY, url=proxy.url, state=f"sqlite:///{tmp_path}/state.db", book=book)
    assert code == -signal.SIGKILL
    [run] = runs.latest(bench.ledger, kind="play")
    assert (run.status, run.holder.rsplit(":", 1)[1]) == ("running", str(zygote.pid()))
    assert bench.seen("orders")["pending"] == ["A", "B"]
    ended = bench.resume(run.id)
    assert ended.status == "done"
    assert bench.result("two")["ids"] == ["A", "B"]
    assert ended.tallies["orders"].as_row()["changed"] == 4
    assert bench.seen("orders") == {
        "pending": ["A", "B"], "dead": ["C", "D", "E"], "limits": {"GRP0SSBKAh61tG": 2}, "rows": 5,
    }  # fmt: skip
    with pytest.raises(BadInputError, match="only one that failed or was interrupted goes on"):
        bench.resume(run.id)


def test_c17_a_run_that_was_taken_over_changes_nothing_more(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A"]})
    other = bench.put("mail", {"pending": ["B"]})
    assert other is None
    text = """
    - queues: orders
      tasks:
        - {name: wait, wait_for: {pending: 0, every: 10ms}}
        - {name: stop, pause: }
    """
    began = threading.Event()
    faults: list[BaseException] = []

    def first() -> None:
        try:
            bench.play(text)
        except BaseException as fault:
            faults.append(fault)

    def watch() -> None:
        while not any(type(event).__name__ == "Progress" for event in list(bench.said)):
            began.wait(0.01)

    thread = threading.Thread(target=first)
    thread.start()
    watch()
    [run] = runs.latest(bench.ledger, kind="play")
    with pytest.raises(BadInputError, match=f"is still being run by {re.escape(run.holder)} "):
        records.claim(bench.ledger, run.id, lambda _record: (set(), set()))
    # As if its host had been given up: another process takes the run.
    with bench.ledger.write() as connection:
        runs.finish(connection, run.id, runs.INTERRUPTED)
    records.claim(bench.ledger, run.id, lambda _record: (set(), set()))
    bench.server.write("ZREM", "emq:{orders}:pending", job("A"))
    thread.join(20)
    assert [type(fault) for fault in faults] == [TakenOverError]
    assert "paused" not in bench.seen("orders")


def test_c20_one_of_two_removed_the_other_stays(bench: Bench) -> None:
    bench.put("mail[1]", {"dead": {"A": "x", "B": "x"}})
    bench.put("mail1", {"dead": {"C": "x"}})
    ended = bench.play('- {queues: "mail[1]", tasks: [{remove: {ids: "' + job("A") + '"}}]}\n')
    assert ended.status == "done"
    assert bench.seen("mail[1]") == {"dead": ["B"], "rows": 1}
    ended = bench.play('- {queues: "mail[1]", tasks: [{pause: }, {obliterate: }]}\n')
    assert (ended.status, set(ended.tallies)) == ("done", {"mail[1]"})
    assert {key for key in bench.keyspace() if "mail[1]" in key} == set()
    assert bench.seen("mail1") == {"dead": ["C"], "rows": 1}
    with pytest.raises(BadInputError, match="matches no queue"):
        bench.play('- {queues: "mail[1]*", tasks: [{pause: }]}\n')


def test_an_act_that_is_interrupted_goes_on(bench: Bench) -> None:
    bench.put("orders", {"dead": dict.fromkeys("ABCDEFGH", "x")})
    stopping = threading.Event()
    text = "- {queues: orders, tasks: [{name: slow, requeue: {all: true, rate: 4}}]}\n"
    from emq_ops.playbook.play import PlayOptions, prepare

    def stop() -> None:
        while len(bench.seen("orders").get("pending", [])) < 2:
            stopping.wait(0.01)
        stopping.set()

    stopper = threading.Thread(target=stop)
    stopper.start()
    ended = prepare(bench.ops, bench.write(text), PlayOptions(), environment={}, stopping=stopping).run()
    stopper.join()
    assert ended.status == "interrupted"
    assert 2 <= len(bench.seen("orders")["pending"]) < 8
    statuses = {run.kind: run.status for run in runs.latest(bench.ledger)}
    assert statuses == {"play": "interrupted", "requeue": "interrupted"}
    said: list[Any] = []
    ended = resume(bench.ops, ended.run, environment={}, emit=said.append).run()
    assert (ended.status, ended.tallies["orders"].changed) == ("done", 1)
    assert bench.seen("orders")["pending"] == list("ABCDEFGH")
