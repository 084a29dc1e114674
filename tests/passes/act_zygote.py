"""Acts and undos in processes of their own, for `Forks`.

    with ActZygote() as zygote:
        code = zygote.run(what="act", kind="remove", url=..., state=..., kill=["commit", "before", 3])
        assert code == -signal.SIGKILL

`kill`: the child kills itself before or after its k-th commit of the ledger; requests are killed at by a proxy.
`commits`: a file that says how many there were.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.effects import Effects
from tests.support.forks import Forks

PRELOADED = ("emq_ops.passes.undo", "emq_ops.protocol.server")


class ActZygote(Forks):
    module = __name__


def child(spec: dict[str, Any]) -> None:
    from emq_ops.ledger.ledger import open_ledger
    from emq_ops.passes.acts import act, choose, resume
    from emq_ops.passes.selection import Selection
    from emq_ops.passes.undo import undo
    from emq_ops.protocol.server import connect

    what, when, at = spec.get("kill") or ("", "", 0)
    effects = Effects({"what": what, "when": when, "at": at}, None)
    with connect(spec["url"]) as server, open_ledger(spec["state"]) as ledger:
        effects.watch(ledger.engine, "commit")
        if spec["what"] == "act":
            chosen = choose(server, "orders", Selection(), ledger)
            act(server, spec["kind"], chosen, ledger, rate=100_000, slice_size=2)
        elif spec["what"] == "resume":
            resume(server, spec["run"], ledger)
        else:
            undo(server, spec["run"], ledger, rate=100_000, slice_size=2)
    if "commits" in spec:
        Path(spec["commits"]).write_text(str(effects.seen["commit"]))
