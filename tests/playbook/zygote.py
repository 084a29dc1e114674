"""Runs of playbooks in processes of their own, for `Forks`.

    with PlayZygote() as zygote:
        assert zygote.run(url=..., state=..., book=..., kill=["commit", "before", 3]) == -signal.SIGKILL

`kill`: the child kills itself before or after its k-th commit of the ledger; requests are killed at by a proxy.
`commits`: a file that says how many there were.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.effects import Effects
from tests.support.forks import Forks

PRELOADED = ("emq_ops.playbook.play", "emq_ops.protocol.server")


class PlayZygote(Forks):
    module = __name__


def child(spec: dict[str, Any]) -> None:
    from emq_ops.ledger.ledger import open_ledger
    from emq_ops.playbook.context import Ops
    from emq_ops.playbook.play import Options, prepare, resume
    from emq_ops.protocol.server import connect

    what, when, at = spec.get("kill") or ("", "", 0)
    effects = Effects({"what": what, "when": when, "at": at}, None)
    with connect(spec["url"]) as server, open_ledger(spec["state"]) as ledger:
        effects.watch(ledger.engine, "commit")
        ops = Ops(server, ledger)
        if "run" in spec:
            opened = resume(ops, spec["run"], environment={})
        else:
            opened = prepare(ops, spec["book"], Options(), environment={})
        with opened as ready:
            ready.runner.run()
    if "commits" in spec:
        Path(spec["commits"]).write_text(str(effects.seen["commit"]))
