"""Passes in processes of their own, for `Zygote`.

    code = zygote.run("tests.faults.passes.run_pass", what="sweep", url=..., state=..., kill=["commit", "before", 3])

`kill`: the child kills itself before or after its k-th commit of the ledger (``commit``) or of the archive's local
database (``local``), or effect on a file of the archive's bucket (``file``); a proxy kills it at a request. Its result
says how many of each there were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from emq_archive.local import open_local
from emq_archive.model import Policy, Writer
from emq_archive.remote import open_remote
from emq_archive.write.dead import DeadArchive
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.frame.once import Patience, run_once
from emq_ops.passes.frame.order import Order
from emq_ops.passes.registry import by_name
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from tests.support.effects import Effects
from tests.support.passing import running

QUEUE = "mail"


def one_pass(what: str, server: Any, ledger: Any, lease_ms: int = 15_000, archive: Any = None) -> dict[str, Any]:
    """The pass that is killed, and the next one. With `archive` (fence -> archiver) the trim archives first."""
    stalled = StalledPolicy(max_stalled=2, limit=2, max_exempt=1)
    dead = DeadPolicy(keep=3, slice=1, archive=archive is not None)
    found = by_name(what)
    assert found is not None
    order = Order(QUEUE, stalled if what == "sweep" else dead, applied=False)
    return run_once(running(server, ledger, archiver=archive), found, order, Patience(lease_ms=lease_ms))


@contextlib.contextmanager
def archive_in(folder: Path, server: Any, effects: Effects | None = None) -> Iterator[Callable[[Any], Any]]:
    """The archive of the queue's dead jobs below a folder (a local database and a bucket), under a fence."""
    with open_local(f"sqlite:///{folder}/local.db") as local:
        if effects is not None:
            effects.watch(local.engine, "local")
        remote = open_remote(f"file:{folder}/bucket")
        yield lambda fence: DeadArchive(
            Queue(server, QUEUE), local, remote, Policy(), Writer(fence.state, fence.token, "test")
        )
        remote.close()


def child(spec: dict[str, Any]) -> dict[str, int]:
    folder = Path(spec["archive"]) if "archive" in spec else None
    effects = Effects(spec.get("kill"), str(folder / "bucket") if folder else None)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(connect(spec["url"]))
        ledger = stack.enter_context(open_ledger(spec["state"]))
        archive = stack.enter_context(archive_in(folder, server, effects)) if folder else None
        effects.watch(ledger.engine, "commit")
        one_pass(spec["what"], server, ledger, spec.get("lease_ms", 15_000), archive)
    effects.check()
    return effects.seen
