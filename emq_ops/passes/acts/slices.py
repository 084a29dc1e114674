"""One slice of an act: a script does it, and what it did stays on the server until the ledger has it."""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.ledger import acts, deaths
from emq_ops.ledger.erased import erased_among
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.passes.acts.backups import delete_backups, read_backups
from emq_ops.protocol.keyspace import Keys, keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

TAKES_AWAY = (acts.REMOVE, acts.DRAIN, acts.MOVE)
"""Kinds of runs that lay jobs aside."""
OF_THE_DEAD = (acts.REQUEUE, acts.REMOVE)


def send_slice(
    server: Server, kind: str, keys: Keys, run: str, items: Sequence[acts.Item], most: int | None = None
) -> None:
    """Acts on these jobs in one script, which keeps what it did on the server. `most`: how many attempts a requeued job
    keeps (None: all). Raises what the server raises."""
    facts: list[Arg] = [value for item in items for value in (item.job, item.attempts, item.stalls)]
    acted = keys.acted(run)
    if kind == acts.REQUEUE:
        bound: Arg = "" if most is None else most
        server.run(load("act_requeue"), [acted, keys.dead, keys.exempt], [keys.base, bound, *facts])
    elif kind in (acts.DRAIN, acts.MOVE):
        args: list[Arg] = [keys.base, keys.backup_prefix(run), *facts]
        server.run(load("act_drain"), [acted, keys.pending, keys.schedule], args)
    else:
        server.run(load("act_remove"), [acted, keys.dead], [keys.base, keys.backup_prefix(run), *facts])


def read_acted(server: Server, keys: Keys, run: str) -> list[tuple[str, str]]:
    """What the scripts of a run left on the server for the ledger: job and code, in order."""
    flat = [value.decode("ascii", "replace") for value in server.read("LRANGE", keys.acted(run), 0, -1)]
    return list(zip(flat[::2], flat[1::2], strict=True))


def settle_acted(server: Server, ledger: Ledger, kind: str, queue: str, run: str) -> dict[str, str]:
    """Puts what the last slice did into the ledger, and lets the server forget it; returns job -> code. Harmless to
    repeat."""
    keys = keys_of(queue)
    codes = dict(read_acted(server, keys, run))
    if not codes:
        return {}
    done = [job for job, code in codes.items() if code == acts.DONE]
    snapshots = read_backups(server, keys, run, done) if kind in TAKES_AWAY else {}
    now = server.now_ms(queue)
    how = deaths.REMOVED if kind == acts.REMOVE else deaths.REVIVED
    with ledger.write() as connection:
        for job in erased_among(connection, queue, list(snapshots)):
            del snapshots[job]
        acts.settle(connection, run, codes, host_ms(), snapshots)
        if kind in OF_THE_DEAD:
            deaths.close(connection, queue, done, how, now, by=run)
    if kind in TAKES_AWAY:
        delete_backups(server, keys, run, done)
    server.write("UNLINK", keys.acted(run))
    return codes
