"""What is wrong with a queue, told from one look at it, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emq_ops.ledger.holds import Hold
from emq_ops.overview.look import QueueLook
from emq_ops.overview.words import span

LATE_MS = 60_000
"""Leases, due jobs and repeatables that wait for longer are seen to by nobody: who does so beats every second."""
STUCK_MS = 300_000
"""A job that waited so long while nothing is in flight has no worker."""
RECENT_MS = 3_600_000
"""A death within the last hour is one to look at."""
LAG_MS = 600_000
"""So far may an archive be behind."""
LONG_HOLD_MS = 86_400_000
"""A hold that ends later than a day from now is one that somebody may have forgotten."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong. `kind`: a word for machines; `text`: a clause; `fix`: the command that mends or explains it."""

    kind: str
    text: str
    fix: str


def problems(look: QueueLook, hold: Hold | None = None, last_death_ms: int | None = None) -> list[Problem]:
    """What is wrong with the queue, the worst first. `hold`: the one that stands; `last_death_ms`: unix ms."""
    return [*_broken(look), *_late(look), *_stopped(look, hold), *_dying(look, last_death_ms)]


def _broken(look: QueueLook) -> Iterator[Problem]:
    queue = look.queue
    if look.damage:
        yield Problem("damaged", look.damage[0], f"emq-ops doctor {queue}")
    if look.aside:
        yield Problem("aside", f"{look.aside:,} members can't be taken and were set aside", f"emq-ops doctor {queue}")
    if look.lanes and look.lanes_full == look.lanes and not look.active:
        text = f"all {look.lanes:,} lanes with work are at their limit, and nothing is in flight"
        yield Problem("lanes_full", text, f"emq-ops doctor {queue} --fix")


def _late(look: QueueLook) -> Iterator[Problem]:
    queue, now = look.queue, look.now_ms
    if look.deadline_ms is not None and now - look.deadline_ms > LATE_MS:
        text = f"{look.lapsed:,} leases lapsed, the first {span(now - look.deadline_ms)} ago: nobody recovers them"
        yield Problem("lapsed", text, f"emq-ops sweep {queue}")
    if look.due_ms is not None and now - look.due_ms > LATE_MS and not look.paused:
        text = f"{look.overdue:,} scheduled jobs are due, the first for {span(now - look.due_ms)}: nobody promotes them"
        yield Problem("overdue", text, f"emq-ops promote {queue}")
    if look.repeat_ms is not None and now - look.repeat_ms > LATE_MS:
        text = f"repeatable '{look.repeat}' has been due for {span(now - look.repeat_ms)}: nobody fires it"
        yield Problem("repeatable_overdue", text, f"emq-ops promote {queue}, or promote: {{every: 1s}} in the YAML")
    if look.lag_ms is not None and look.lag_ms > LAG_MS:
        yield Problem("archive", f"the archive is {span(look.lag_ms)} behind", f"emq-ops archive fold {queue}")
    lease = look.lease
    if lease is not None and lease.until_ms and not lease.stands and now - lease.until_ms > LATE_MS:
        text = f"nobody leads it since {span(now - lease.until_ms)}: the daemon that did is gone"
        yield Problem("no_leader", text, "emq-ops up")


def _stopped(look: QueueLook, hold: Hold | None) -> Iterator[Problem]:
    queue, now = look.queue, look.now_ms
    if look.paused and (look.waiting or look.scheduled):
        count = look.waiting + look.scheduled
        waits = "1 job waits" if count == 1 else f"{count:,} jobs wait"
        yield Problem("paused", f"paused, and {waits}", f"emq-ops queue resume {queue}")
    if hold is not None:
        until = f"until {span(hold.until_ms - now)} from now"
        long = ": forgotten?" if hold.until_ms - now > LONG_HOLD_MS else ""
        why = f" ({hold.why})" if hold.why else ""
        yield Problem("held", f"held by {hold.holder} {until}{why}{long}", f"emq-ops release {queue}")
    oldest = look.oldest_ms
    if not (look.paused or look.active) and oldest is not None and now - oldest > STUCK_MS:
        text = f"{look.waiting:,} jobs wait, the oldest minted {span(now - oldest)} ago, and nothing is in flight"
        yield Problem("no_workers", text, f"emq-ops worker ls {queue}")
    if look.ceiling is not None and look.active >= look.ceiling and look.waiting:
        text = f"{look.active:,} in flight is the ceiling ({look.ceiling:,}), and {look.waiting:,} wait"
        yield Problem("ceiling", text, f"raise settings.concurrency of {queue}, or wait")


def _dying(look: QueueLook, last_death_ms: int | None) -> Iterator[Problem]:
    if look.dead and last_death_ms is None:  # no daemon looks at it: they may be of this minute
        yield Problem("dying", f"{look.dead:,} dead, nobody recorded since when", f"emq-ops audit dead {look.queue}")
    elif last_death_ms is not None and look.dead and look.now_ms - last_death_ms < RECENT_MS:
        text = f"{look.dead:,} dead, the last {span(look.now_ms - last_death_ms)} ago"
        yield Problem("dying", text, f"emq-ops audit dead {look.queue}")
