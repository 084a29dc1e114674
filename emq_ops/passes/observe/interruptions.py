"""Noticing interruptions of the node that owns a queue's slot, and making the census at first contact after one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.database.engine import Connection
from emq_ops.ledger import deaths, holds, interruptions
from emq_ops.ledger.alerts import Alert, watched
from emq_ops.ledger.holds import Window
from emq_ops.ledger.interruptions import Contact, Counted, Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit, InterruptionSeen, alert, nowhere
from emq_ops.passes.observe.evidence import JudgingContext, epoch_proves
from emq_ops.passes.observe.queue_state import QueueState, restored
from emq_ops.passes.observe.rows import token_of
from emq_ops.protocol.ids import is_valid, parse
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.server import Server

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class DetectedInterruption:
    """An interruption as it shows in two looks. `latest_end_ms`: it can't have ended later; for a restart it is exact
    to a second, else it is the moment of the second look."""

    kind: str
    started_ms: int | None
    ended_ms: int
    went_back: bool
    evidence: dict[str, Any]


def compare(before: Contact | None, now: QueueState, *, loaded: bool = False) -> DetectedInterruption | None:
    """What happened between the last contact and this look, None where nothing did. Pure.

    `loaded`: without an earlier contact, whether this life began by loading a keyspace from disk: then there was one
    before it.
    """
    if before is None:
        return (
            DetectedInterruption(interruptions.RESTART, None, now.born_ms, False, {"loaded_from_disk": True})
            if loaded
            else None
        )
    facts: dict[str, Any] = {}
    if before.went_back:
        facts["token"] = {"known": before.token}
    same_life = before.run_id == now.run_id
    if not same_life and now.token < before.token:
        # Who led looks at the new life before the lease is taken anew, which notes the same of `before`.
        facts["token"] = {"known": before.token, "found": now.token}
    if not same_life or before.lost:
        for name in ("completed", "failed"):
            # A counter at zero was deleted with the queue; a lower one is an older one.
            if 0 < getattr(now, name) < getattr(before, name):
                facts[name] = {"known": getattr(before, name), "found": getattr(now, name)}
    back = bool(facts)
    if same_life:
        if now.promoted and before.replid != now.replid:
            return DetectedInterruption(
                interruptions.FAILOVER, before.seen_ms, now.now_ms, back, facts | {"replid": before.replid}
            )
        if before.lost:
            return DetectedInterruption(interruptions.OUTAGE, before.seen_ms, now.now_ms, back, facts)
        return (
            DetectedInterruption(interruptions.REWIND, before.seen_ms, now.now_ms, True, facts)
            if before.went_back
            else None
        )
    if now.promoted or now.born_ms <= before.seen_ms:
        # It lived already when we talked to another: this is its replica, or the slot's new owner.
        return DetectedInterruption(interruptions.FAILOVER, before.seen_ms, now.now_ms, back, facts)
    return DetectedInterruption(interruptions.RESTART, before.seen_ms, max(now.born_ms, before.seen_ms), back, facts)


def notice(
    server: Server, ledger: Ledger, state: QueueState, lease_ms: int, emit: Emit = nowhere
) -> Interruption | None:
    """Records what happened since the last contact, with a census where it is made in time; answers the newest
    interruption of the queue. Call it holding the queue's lease. `lease_ms`: the queue's longest lease."""
    queue = state.queue
    with ledger.read() as connection:
        before = interruptions.contact_of(connection, queue)
        newest = interruptions.latest(connection, queue)
    cut = compare(before, state, loaded=before is None and restored(server, queue))
    seen = {"run_id": state.run_id, "replid": state.replid, "seen_ms": state.now_ms, "token": state.token}
    seen |= {"completed": state.completed, "failed": state.failed, "lost": False, "went_back": False}
    if cut is None:
        if before is None:
            with ledger.write() as connection:
                if state.dead == 0 and not deaths.count_open(connection, queue):
                    seen |= {"agreed_dead": 0, "agreed_failed": state.failed}  # there is nothing to bring in line
                interruptions.save_contact(connection, queue, **seen)
        return newest
    found, leases = describe(server, state, before, cut, lease_ms)
    lost = _lost_flights(server, ledger, queue) if found.went_back else []
    with ledger.write() as connection:
        known = interruptions.contact_of(connection, queue)
        told = known is not None and (known.run_id, known.replid) == (state.run_id, state.replid)
        if told and known is not None and not known.lost and not known.went_back:
            # Another pass of this queue (a sweep beside a trim) was quicker: it is recorded.
            return interruptions.latest(connection, queue)
        # A failover back promotes, and a slot that comes back brings its lease along: this does neither.
        twofold = found.kind == interruptions.FAILOVER and found.went_back and not state.promoted
        twofold = twofold and interruptions.was_left(connection, queue, state.run_id)
        number = interruptions.add(connection, found, leases)
        interruptions.add_vanished(connection, number, lost, interruptions.IN_FLIGHT)
        # Sweeps until now were of the earlier life, whatever their clock: none says anything of what is in flight here.
        interruptions.save_contact(connection, queue, **seen, agreed_dead=-1, agreed_failed=-1, swept_ms=0)
    ordinary = server.ends_unused and found.kind == interruptions.RESTART and not found.went_back
    (nowhere if ordinary and not found.in_flight else emit)(
        InterruptionSeen(
            queue,
            interruption=number,
            kind=found.kind,
            started_ms=found.started_ms,
            ended_ms=found.ended_ms,
            in_flight=found.in_flight,
            went_back=found.went_back,
        )
    )
    if found.went_back:
        text = "the keyspace went back in time: what was written last is gone"
        alert(ledger, emit, Alert(queue, "went_back", text, state.now_ms, found.evidence))
    if twofold:
        text = "two servers answer under one name: this one was here before, and lived on while another answered"
        facts = {"run_before": found.run_before, "run_after": found.run_after}
        alert(ledger, emit, Alert(queue, "two_servers", text, state.now_ms, facts))
    return dataclasses.replace(found, id=number, vanished=len(lost))


def _lost_flights(server: Server, ledger: Ledger, queue: str) -> list[str]:
    """Jobs that the last pass sampled in flight, and that have no row in a keyspace that is older than that pass."""
    keys = keys_of(queue)
    with ledger.read() as connection:
        jobs = [lease.job for lease in watched(connection, queue)]
    rows = server.read_many([("EXISTS", keys.row(job)) for job in jobs])
    return [job for job, row in zip(jobs, rows, strict=True) if not row]


def describe(
    server: Server, state: QueueState, before: Contact | None, cut: DetectedInterruption, lease_ms: int
) -> tuple[Interruption, list[Counted]]:
    """The interruption as it is recorded, and its census (empty where it would be too late). Changes nothing."""
    # Later than a longest lease after the end, who is in flight was claimed since: then the clock knows better.
    in_time = state.now_ms <= cut.ended_ms + lease_ms
    leases = take_census(server, state.queue) if in_time else []
    horizon = max((c.deadline_ms for c in leases), default=cut.ended_ms) if in_time else cut.ended_ms + lease_ms
    started, evidence = cut.started_ms, cut.evidence
    if started is None:
        # Without an earlier contact, the newest job that was in flight across it is the last sign of the earlier life.
        minted = [parse(lease.job).unix_ms for lease in leases]
        started = max((ms for ms in minted if ms <= cut.ended_ms), default=None)
        evidence = evidence | ({"started_by": "newest job in flight"} if started is not None else {})
    found = Interruption(
        queue=state.queue,
        kind=cut.kind,
        run_before=before.run_id if before else None,
        run_after=state.run_id,
        started_ms=started,
        ended_ms=cut.ended_ms,
        seen_ms=state.now_ms,
        census_ms=state.now_ms if in_time else None,
        horizon_ms=horizon,
        went_back=cut.went_back,
        evidence=evidence,
        in_flight=len(leases) if in_time else state.active,
    )
    return found, leases


def take_census(server: Server, queue: str) -> list[Counted]:
    """Who is in `active`, with token and deadline. Members that are no job ids are left out."""
    keys = keys_of(queue)
    deadlines: dict[str, int] = {}
    cursor = b"0"
    while True:
        cursor, flat = server.read("ZSCAN", keys.active, cursor, "COUNT", _PAGE)
        for member, score in zip(flat[::2], flat[1::2], strict=True):
            if is_valid(member):
                deadlines[member.decode("ascii")] = score_ms(score)
        if cursor == b"0":
            break
    jobs = [job for job in deadlines if job.startswith("JOB")]
    found = server.read_many([("HGET", keys.row(job), "attempts") for job in jobs])
    return [Counted(job, token_of(token), deadlines[job]) for job, token in zip(jobs, found, strict=True)]


def judging_context(
    connection: Connection,
    state: QueueState,
    contact: Contact | None,
    newest: Interruption | None,
    lease_ms: int,
    windows: Sequence[Window] = (),
) -> JudgingContext:
    """What `judge` needs besides the census entries of the leases in question. `windows`: those of the config."""
    swept_ms = contact.swept_ms if contact is not None else 0
    # A sweep that found nothing due after the last lease of the earlier life had lapsed leaves nothing to be judged.
    cut = newest if newest is not None and swept_ms < newest.horizon_ms else None
    open_windows = holds.windows_of(connection, state.queue, swept_ms, windows)
    begun = [window for window in open_windows if window.start_ms <= state.now_ms]
    proves = True
    if cut is not None:
        under = interruptions.of_run(connection, cut.queue, state.run_id)
        proves = epoch_proves(
            state.run_id, under, primary_before=interruptions.was_left(connection, cut.queue, state.run_id)
        )
    return JudgingContext(run_id=state.run_id, windows=begun, interruption=cut, epoch_proves=proves, lease_ms=lease_ms)
