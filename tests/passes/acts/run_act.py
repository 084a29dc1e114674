"""Acts and undos in processes of their own, for `Zygote`.

    spec = {"what": "act", "kind": "remove", "url": ..., "state": ..., "kill": ["commit", "before", 3]}
    assert zygote.run("tests.passes.acts.run_act", **spec) == -signal.SIGKILL

`kill`: the child kills itself before or after its k-th commit of the ledger; requests are killed at by a proxy. Its
result says how many commits there were.
"""

from __future__ import annotations

from typing import Any

from emq_ops.ledger import acts
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.acts.act import act, resume
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.acts.undo import undo_run
from emq_ops.passes.acts.waiting import SCHEDULED, WAITING, WaitingSelection, WaitingSet
from emq_ops.protocol.server import connect
from tests.support.effects import Effects


def child(spec: dict[str, Any]) -> dict[str, int]:
    effects = Effects(spec.get("kill"), None)
    with connect(spec["url"]) as server, open_ledger(spec["state"]) as ledger:
        effects.watch(ledger.engine, "commit")
        if spec["what"] == "act":
            chosen = choose(server, "orders", DeadSelection(), ledger)
            act(server, spec["kind"], chosen, ledger, options=ActOptions(100_000, slice_size=2))
        elif spec["what"] == "move":
            found = WaitingSet(server, "orders", WaitingSelection((WAITING, SCHEDULED))).targets()
            act(server, acts.MOVE, found, ledger, ActOptions(100_000, slice_size=3, to=("mail", spec["lane"])))
        elif spec["what"] == "resume":
            resume(server, spec["run"], ledger)
        else:
            undo_run(server, spec["run"], ledger, options=ActOptions(100_000, slice_size=2))
    return effects.seen
