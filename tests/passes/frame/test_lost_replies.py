"""A reply is lost at each write of a pass in turn: one run tells what the whole call did; one undo takes it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emq_archive.local.store import open_local
from emq_archive.remote import open_remote
from emq_ops.ledger import runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.undo import undo_run
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.once import run_once
from emq_ops.passes.frame.order import Order
from emq_ops.passes.frame.stores import Stores
from emq_ops.passes.promote.declared import PromotePolicy
from emq_ops.passes.registry import PASSES, by_name
from emq_ops.policy.models import DeadPolicy, StalledPolicy, StreamPolicy
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions.enqueue import schedule_in
from tests.support.passing import dead_of, kill_row, stall, until
from tests.support.proxy import RespProxy, scripted
from tests.support.valkey import Valkey

COUNT = 7
STREAM = "completions"


@dataclass(frozen=True)
class Case:
    """`seed`: something to do; `scripts`: what a run writes by; `counts`: what the whole call did."""

    policy: Any
    seed: Callable[[Queue], Any]
    scripts: tuple[str, ...]
    counts: dict[str, int]
    target: str = ""


def append(q: Queue) -> None:
    for n in range(COUNT):
        q.server.write("XADD", q.keys.stream(STREAM), f"{1_796_000_000_000 + n}-0", "job", f"j{n}")


def due(q: Queue) -> None:
    for _ in range(COUNT):
        schedule_in(q, mint(), b"x", 1)
    until(lambda: q.server.read("ZCOUNT", q.keys.schedule, "-inf", q.server.now_ms(q.name)) == COUNT, "due")


CASES = {
    "sweep": Case(
        StalledPolicy(max_stalled=2, limit=3, restart="count"),
        lambda q: stall(q, COUNT),
        ("sweep_pass", "exempt_tidy"),
        {"recovered": COUNT},
    ),
    "trim": Case(
        DeadPolicy(keep=0, slice=1),
        lambda q: kill_row(q, COUNT),
        ("dead_trim",),
        {"found_dead": COUNT, "removed": COUNT},
    ),
    "archive": Case(
        StreamPolicy(keep=0), append, ("stream_trim", "stream_watermark"), {"folded": COUNT, "trimmed": COUNT}, STREAM
    ),
    "promote": Case(PromotePolicy(limit=COUNT), due, ("promote_pass",), {"promoted": COUNT}),
}


def test_every_pass_is_here() -> None:
    # Those that keep an archive in order write nothing on the server.
    assert set(CASES) == {one.name for one in PASSES if not one.of_archive}


@pytest.mark.parametrize("kind", ["cut_before", "cut_after"])
@pytest.mark.parametrize("name", list(CASES))
def test_one_run_tells_what_the_whole_call_did(
    valkey: Valkey, server: Server, ledger: Ledger, tmp_path: Path, name: str, kind: str
) -> None:
    case, what, q = CASES[name], by_name(name), Queue(server, "mail")
    assert what is not None
    at = 0
    while True:
        at += 1
        server.write("FLUSHALL")
        case.seed(q)
        stores = Stores(
            lambda at=at: open_local(f"sqlite:///{tmp_path}/{at}.db"),  # type: ignore[misc]  # bound now
            lambda at=at: open_remote(f"file:{tmp_path}/bucket{at}"),  # type: ignore[misc]
        )
        with RespProxy(valkey.url) as proxy, connect(proxy.url) as ours:
            fault = proxy.arm(kind, at=at, match=scripted(*case.scripts))
            order = Order("mail", case.policy, case.target, applied=False, force=True)
            report = run_once(Services(ours, ledger, stores), what, order)
        stores.close()
        told = {name: report[name] for name in case.counts}
        assert told == case.counts, (at, report)
        rows = [run for run in runs.latest(ledger, queue="mail") if run.id >= report["run"]]
        assert [(run.id, run.status) for run in rows] == [(report["run"], "done")]
        assert {name: rows[0].counts.get(name) for name in case.counts} == case.counts
        if name == "trim":
            assert dead_of(q) == []
            assert undo_run(server, report["run"], ledger).done == COUNT
            assert len(dead_of(q)) == COUNT
        if not fault.fired:
            break
    assert at > 1
