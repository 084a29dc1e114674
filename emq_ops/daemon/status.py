"""How tasks and daemons stand, from the ledger and the leases: what ``ps`` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emq_ops.daemon import clock
from emq_ops.daemon.progress import EVERY_MS
from emq_ops.daemon.restrictions import active_restrictions, fields_of
from emq_ops.daemon.tasks import TaskSet, task_set
from emq_ops.deploy.model import instant
from emq_ops.deploy.store.revisions import Revision
from emq_ops.ledger import interruptions, marks
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.owner import lease_info_of
from emq_ops.policy.triggers import Cron, Interval
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server


def now_of(server: Server | None) -> int:
    """The server's clock, unix ms; this host's while the server is away (None, or it does not answer)."""
    if server is None:
        return clock.now_ms()
    try:
        seconds, micros = server.read("TIME")
    except EmqError:
        return clock.now_ms()
    return int(seconds) * 1000 + int(micros) // 1000


def leaders(server: Server, queues: list[str]) -> dict[str, str]:
    """Who leads each queue, '' for nobody. In one flush."""
    flats = server.read_many([("HGETALL", keys_of(queue).lease) for queue in queues])
    clocks = {queue: server.now_ms(queue) for queue in queues[:1]}
    now = next(iter(clocks.values()), 0)
    found: dict[str, str] = {}
    for queue, flat in zip(queues, flats, strict=True):
        standing = lease_info_of(flat, now) if flat else None
        found[queue] = str(standing.holder) if standing is not None and standing.stands else ""
    return found


def task_rows(
    server: Server | None,
    ledger: Ledger,
    revision: Revision,
    env: Mapping[str, str],
    *,
    faults: dict[str, EmqError] | None = None,
) -> list[dict[str, Any]]:
    """One row a task of the revision: leader, last and next run (UTC), `overdue_ms`: for how long the next run has been
    due. A daemon that is alive writes idle runs down every `EVERY_MS`; within that nothing is overdue. A first run is
    due within an interval from the daemon's start. Of the queue: the hold and the maintenance window that stand
    (`emq_ops.daemon.restrictions.FIELDS`), and why it stands still though no pass fails
    (`wedged`). Where the server is away (`server` None, or it does not answer) what the
    state knows is told, without leaders. `faults` gets the queues of which not every task can be made, and why."""
    live: list[str] = []
    moment = clock.now_ms()
    led: dict[str, str] = {}
    found: TaskSet | None = None
    try:
        live = server.queues() if server is not None else interruptions.contacted_queues(ledger)
        found = task_set(revision.document, live, env)
        if server is not None:
            led = leaders(server, found.queues)
        moment = now_of(server)
    except EmqError:
        led = {}
    stands = active_restrictions(ledger, revision.document, env, moment)
    if found is None:
        found = task_set(revision.document, live, env)
    if faults is not None:
        faults |= found.faults
    known, now = marks.load(ledger), clock.now_ms()
    alive = marks.living(ledger)
    since = {one.holder: one.started_ms for one in alive}
    wedged = {queue: kinds for one in alive for queue, kinds in one.facts.get("wedged", {}).items()}
    rows = []
    for key in sorted(found.tasks):
        task, mark = found.tasks[key], known.get(key)
        due = None if mark is None else mark.next_ms
        if mark is not None and (due is None or due <= mark.due_ms):
            due = clock.ms_of(task.schedule.trigger.next_fire(clock.at(mark.due_ms)))
        elif mark is None and isinstance(task.schedule.trigger, Cron):
            due = clock.ms_of(task.schedule.trigger.next_fire(clock.at(now)))  # an interval's first run is at once
        leader, trigger = led.get(task.queue, ""), task.schedule.trigger
        started = since.get(leader) if mark is None else None
        first = started + trigger.ms if started is not None and isinstance(trigger, Interval) else None
        rows.append(
            {
                "queue": task.queue,
                "task": task.name,
                "leader": leader,
                "every": task.schedule.trigger.text,
                "last": instant(mark.started_ms) if mark is not None and mark.started_ms else None,
                "next": instant(due) if due is not None else "at once",
                "late_ms": mark.late_ms if mark is not None else None,
                "overdue_ms": _overdue(now, due if first is None else first, leader),
                "runs": mark.runs if mark is not None else 0,
                "missed": mark.missed if mark is not None else 0,
                "skipped": mark.skipped if mark is not None else 0,
                "failures": mark.failures if mark is not None else 0,
                "error": mark.error if mark is not None else None,
                "wedged": "; ".join(wedged.get(task.queue, {}).values()) or None,
                **fields_of(task.queue, stands),
            }
        )
    return rows


def _overdue(now: int, due: int | None, leader: str) -> int | None:
    if due is None:
        return None
    return max(0, now - due) if not leader or now - due > 2 * EVERY_MS else 0


def daemon_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """One row a living daemon."""
    return [
        {
            "daemon": one.holder,
            "since": instant(one.started_ms),
            "seen": instant(one.seen_ms),
            "revision": one.revision,
            "leads": one.leads,
            **one.facts,
        }
        for one in marks.living(ledger)
    ]
