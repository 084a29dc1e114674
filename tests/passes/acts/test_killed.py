"""Acts and undos killed everywhere: resumed, each comes to the end of an undisturbed one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.acts.act import act, resume
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.acts.undo import undo_run
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.passes.acts.seeding import see, seed
from tests.support.keyspace import dump
from tests.support.kills import WHOLE, kill_at, moments
from tests.support.proxy import RespProxy
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

ACT = "tests.passes.acts.run_act"


@pytest.mark.parametrize("kind", [acts.REMOVE, acts.REQUEUE])
@WHOLE
def test_an_act_is_resumed_to_the_same_end(
    whole: bool, kind: str, server: Server, valkey: Valkey, zygote: Zygote, tmp_path: Path
) -> None:
    _kill_everywhere(kind, server, valkey, zygote, tmp_path, undoing=False, whole=whole)


@WHOLE
def test_an_undo_goes_on_to_the_same_end(
    whole: bool, server: Server, valkey: Valkey, zygote: Zygote, tmp_path: Path
) -> None:
    _kill_everywhere(acts.REMOVE, server, valkey, zygote, tmp_path, undoing=True, whole=whole)


def _kill_everywhere(
    kind: str, server: Server, valkey: Valkey, zygote: Zygote, tmp_path: Path, *, undoing: bool, whole: bool
) -> None:
    seed(Queue(server, "orders"), 4)
    before, run = dump(server), ""
    template = tmp_path / "template.db"
    with open_ledger(f"sqlite:///{template}") as ledger:
        if kind == acts.REMOVE:  # a requeue records the deaths itself
            see(server, ledger)
            server.write("UNLINK", Queue(server, "orders").keys.lease)
        if undoing:
            run = (
                act(
                    server, kind, choose(server, "orders", DeadSelection(), ledger), ledger, ActOptions(rate=100_000)
                ).run
                or ""
            )
    commands = _as_commands(server)

    def fresh(name: str) -> str:
        """The keyspace and the ledger as they were."""
        for key in set(server.scan()):
            server.write("UNLINK", key)
        for command in commands:
            server.write(*command)
        shutil.copy(template, tmp_path / f"{name}.db")
        return f"sqlite:///{tmp_path}/{name}.db"

    def spec(state: str) -> dict[str, Any]:
        return {"what": "undo" if undoing else "act", "kind": kind, "url": proxy.url, "state": state, "run": run}

    with RespProxy(valkey.url) as proxy:
        # The first time the scripts are loaded too, which no later run does.
        assert zygote.run(ACT, **spec(fresh("first"))) == 0
        state = fresh("undisturbed")
        proxy.forget()
        counts = zygote.start(ACT, **spec(state)).result()
        kills, killed = moments(counts, proxy, whole=whole), 0
        end = dump(server)
        assert (end == before) == undoing
        for number, moment in enumerate(kills):
            state = fresh(str(number))
            killed += kill_at(moment, zygote, ACT, {"request": proxy}, **spec(state)).wait() != 0
            with open_ledger(state) as ledger:
                _finish(server, ledger, kind, run)
                assert dump(server) == end, moment
                if undoing:
                    assert {i.undone_by is not None for i, _ in acts.removed(ledger, run)} == set()
                    continue
                [done] = [r for r in runs.latest(ledger, kind=kind) if r.status == runs.DONE]
                assert done.counts == {"selected": 4, "done": 4}, moment
                if kind == acts.REMOVE:
                    undo_run(server, done.id, ledger)
                    assert dump(server) == before, moment
        assert killed > 0.9 * len(kills)


def _finish(server: Server, ledger: Ledger, kind: str, undone: str) -> None:
    """What an operator types after a kill."""
    if undone:
        undo_run(server, undone, ledger)
        return
    open_runs = [run for run in runs.latest(ledger, kind=kind) if run.status != runs.DONE]
    for run in open_runs:
        if run.slices:
            resume(server, run.id, ledger)
        else:
            with pytest.raises(BadInputError, match="killed while it was planned"):
                resume(server, run.id, ledger)
    if not any(run.status == runs.DONE for run in runs.latest(ledger, kind=kind)):
        act(server, kind, choose(server, "orders", DeadSelection()), ledger)


def _as_commands(server: Server) -> list[tuple[Any, ...]]:
    """Commands that make the keyspace as it is."""
    out: list[tuple[Any, ...]] = []
    for key, content in dump(server).items():
        kind, value = next(iter(content.items()))
        if kind == "hash":
            out.append(("HSET", key, *[x for pair in value.items() for x in pair]))
        elif kind == "zset":
            out.append(("ZADD", key, *[x for m, s in value.items() for x in (s, m)]))
        elif kind == "list":
            out.append(("RPUSH", key, *value))
        elif kind == "string":
            out.append(("SET", key, value))
    return out
