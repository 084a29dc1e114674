"""Runs of playbooks in processes of their own, for `Zygote`.

    code = zygote.run("tests.playbook.run_play", url=..., state=..., book=..., kill=["commit", "before", 3])

`run`: that run is resumed. `kill`: the child kills itself before or after its k-th commit of the ledger; requests are
killed at by a proxy. Its result says how many commits there were.
"""

from __future__ import annotations

from typing import Any

from emq_ops.ledger.ledger import open_ledger
from emq_ops.playbook.context import Ops
from emq_ops.playbook.play import PlayOptions, prepare, resume
from emq_ops.protocol.server import connect
from tests.support.effects import Effects


def child(spec: dict[str, Any]) -> dict[str, int]:
    effects = Effects(spec.get("kill"), None)
    with connect(spec["url"]) as server, open_ledger(spec["state"]) as ledger:
        effects.watch(ledger.engine, "commit")
        ops = Ops(server, ledger)
        if "run" in spec:
            resume(ops, spec["run"], environment={}).run()
        else:
            prepare(ops, spec["book"], PlayOptions(), environment={}).run()
    return effects.seen
