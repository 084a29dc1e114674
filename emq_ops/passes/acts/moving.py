"""Moving waiting jobs to another queue or lane, slice by slice, and back.

A slice is taken away as by a removal: whole, into the ledger. Then it is brought to where it goes, job by job, which
the ledger notes too (the job is brought back, by the run itself). A kill anywhere leaves each job at the one place, at
the other, or in the ledger; whoever goes on, or undoes the run, finds it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from emq_ops.database.statements import pages
from emq_ops.ledger import acts
from emq_ops.ledger.ledger import host_ms
from emq_ops.ledger.runs import Run
from emq_ops.ledger.snapshot import JobSnapshot
from emq_ops.passes.acts import slices
from emq_ops.passes.acts.act import ActOnSelected
from emq_ops.passes.acts.backups import delete_backups, read_backups
from emq_ops.passes.acts.lives import look_again
from emq_ops.passes.acts.options import RateLimiter
from emq_ops.passes.acts.restore import texts_of
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.refusal import check_hold
from emq_ops.passes.lease.owner import check_owner
from emq_ops.protocol.errors import EmqError, OutcomeUnknownError
from emq_ops.protocol.keyspace import Keys, keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg

_TRIES = 5


class MoveWaiting(ActOnSelected):
    """Waiting jobs go elsewhere."""

    kind = acts.MOVE

    def _taken(self, context: Context) -> None:
        """What was taken is brought to where it goes; what can't stand there goes back to where it was."""
        policy, run, server = context.policy, context.run, context.server
        check_owner(server, policy.to_queue, context.ledger)
        check_hold(context.ledger, policy.to_queue, server.now_ms(policy.to_queue))
        there, here = keys_of(policy.to_queue), keys_of(context.queue)
        note_landed(context, run, there)  # of an earlier life
        if there.queue != here.queue:
            note_landed(context, run, here)
        taken = {item.job: whole for item, whole in acts.removed(context.ledger, run) if whole is not None}
        codes = _land(context, there, {job: _moved(whole, policy.to_lane) for job, whole in taken.items()})
        refused = {job: code for job, code in codes.items() if code != acts.DONE}
        _land(context, here, {job: taken[job] for job in refused})
        report = context.report
        report.done -= len(refused)
        report.done_jobs = [job for job in report.done_jobs if job not in refused]
        report.add(refused)
        with context.ledger.write() as connection:
            acts.settle(connection, run, refused, host_ms())


def take_from_there(context: Context, move: Run) -> dict[str, str]:
    """The jobs that a move brought elsewhere, and that still wait there as they were: they are with the ledger again,
    to be brought back. Returns why the others stay: job -> code."""
    server, ledger, run = context.server, context.ledger, context.run
    there, here = keys_of(str(move.policy["to_queue"])), keys_of(move.queue)
    note_landed(context, move.id, there)
    note_landed(context, move.id, here)
    left, limiter = dict[str, str](), RateLimiter.of(context)
    _settle_taken(context, move, there)  # the last slice of an earlier life
    found = [(item, whole) for item, whole in acts.landed(ledger, move.id) if whole is not None]
    for number, page in enumerate(pages(found, limiter.slice)):
        if number:
            look_again(context)
        limiter.wait(len(page))
        slices.send_slice(server, acts.DRAIN, there, run, [item for item, _ in page])
        left |= _settle_taken(context, move, there)
    return left


def _settle_taken(context: Context, move: Run, there: Keys) -> dict[str, str]:
    server, ledger, run = context.server, context.ledger, context.run
    codes = dict(slices.read_acted(server, there, run))
    done = [job for job, code in codes.items() if code == acts.DONE]
    fresh = read_backups(server, there, run, done)
    before = {item.job: whole for item, whole in acts.landed(ledger, move.id) if item.job in fresh}
    with ledger.write() as connection:
        acts.take_again(connection, move.id, {job: _as_before(fresh[job], whole) for job, whole in before.items()})
    delete_backups(server, there, run, done)
    server.write("UNLINK", there.acted(run))
    return {job: code for job, code in codes.items() if code != acts.DONE}


def _land(context: Context, there: Keys, wanted: Mapping[str, JobSnapshot]) -> dict[str, str]:
    """Brings jobs to a queue, each once; returns job -> code. Raises what the server and the ledger raise."""
    codes: dict[str, str] = {}
    for _ in range(_TRIES):
        calls: list[tuple[list[str], list[Arg]]] = [
            ([there.landed(context.run), there.dead, there.row(job)], [there.base, job, *texts_of(whole)])
            for job, whole in wanted.items()
            if job not in codes
        ]
        if not calls:
            break
        replies = context.server.run_many(load("act_restore"), calls)
        codes |= note_landed(context, context.run, there)
        faults = [reply for reply in replies if isinstance(reply, EmqError)]
        if hard := [fault for fault in faults if not isinstance(fault, OutcomeUnknownError)]:
            raise hard[0]
    else:
        if faults and len(codes) < len(wanted):
            raise faults[0]  # what was not told of stands in the ledger, and is no move that was done
    return codes


def note_landed(context: Context, run: str, there: Keys) -> dict[str, str]:
    """Puts what `run` brought to a queue into the ledger, and lets the server forget it; returns job -> code."""
    key = there.landed(run)
    flat = [value.decode("ascii", "replace") for value in context.server.read("LRANGE", key, 0, -1)]
    codes: dict[str, str] = {}
    for job, code in zip(flat[::2], flat[1::2], strict=True):
        codes.setdefault(job, code)  # sent twice, the second time it existed
    if codes:
        with context.ledger.write() as connection:
            acts.mark_undone(connection, run, [job for job, code in codes.items() if code == acts.DONE], run)
        context.server.write("UNLINK", key)
    return codes


def _moved(whole: JobSnapshot, lane: str) -> JobSnapshot:
    """As it is to stand where it goes."""
    if not lane:
        return whole
    place = whole.place if whole.place.startswith(b"schedule ") else b"lane"
    return replace(_in_lane(whole, lane.encode("ascii")), place=place)


def _as_before(fresh: JobSnapshot, before: JobSnapshot | None) -> JobSnapshot:
    """What stands elsewhere now, as it is to stand where it came from."""
    return fresh if before is None else replace(_in_lane(fresh, before.get(b"group")), place=before.place)


def _in_lane(whole: JobSnapshot, group: bytes | None) -> JobSnapshot:
    pairs = [(name, value) for name, value in whole.fields if name != b"group"]
    pairs += [] if group is None else [(b"group", group)]
    return replace(whole, row=tuple(text for pair in pairs for text in pair))
