"""What is dead: the dead sets as they stand, grouped by queue, cause and normalised error, with what the ledger knows.

Read in bounded pages; only groups are kept, so a million dead jobs take no more memory than a thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.audit.competing import competing
from emq_ops.audit.spread import AGE_NAMES, Histogram, age_class
from emq_ops.audit.suspects import BURST, LEASE_MS, Burst, Suspect, bursts, suspect
from emq_ops.ledger import deaths, interruptions
from emq_ops.ledger.interruptions import Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.deadset import DeadJob, DeadSet
from emq_ops.passes.acts.selection import DeadSelection, nothing
from emq_ops.protocol.errors import DamagedError
from emq_ops.protocol.ids import parse
from emq_ops.protocol.server import Server

EXAMPLES = 3
MOST_GROUPS = 2_000
MOST_SUSPECTS = 1_000
OTHER = "(other texts)"


@dataclass(slots=True)
class DeadGroup:
    """Dead jobs of one queue with one cause and one normalised error. `name`: its short name, for filters. Times are
    unix ms, None where nobody recorded them; `minted`: of the oldest and newest id. `examples`: a few job ids;
    `sample`: one error as it stands, cut; `sample_size`: its length in bytes."""

    queue: str
    cause: str
    error: str
    name: str
    jobs: int = 0
    suspects: int = 0
    at_last_attempt: int = 0
    first_seen_ms: int | None = None
    last_seen_ms: int | None = None
    oldest_minted_ms: int | None = None
    newest_minted_ms: int | None = None
    examples: list[str] = field(default_factory=list)
    sample: bytes | None = None
    sample_size: int = -1

    def add(self, job: DeadJob) -> None:
        """One more."""
        self.jobs += 1
        self.at_last_attempt += job.cause == "error"
        minted = parse(job.job).unix_ms
        self.oldest_minted_ms = minted if self.oldest_minted_ms is None else min(self.oldest_minted_ms, minted)
        self.newest_minted_ms = minted if self.newest_minted_ms is None else max(self.newest_minted_ms, minted)
        seen = job.first_seen_ms
        if seen is not None:
            self.first_seen_ms = seen if self.first_seen_ms is None else min(self.first_seen_ms, seen)
            self.last_seen_ms = seen if self.last_seen_ms is None else max(self.last_seen_ms, seen)
        if len(self.examples) < EXAMPLES:
            self.examples.append(job.job)
        if self.sample is None and job.error is not None:
            self.sample, self.sample_size = job.error, job.error_size

    def as_row(self) -> dict[str, Any]:
        """As a plain dict."""
        row = {name: getattr(self, name) for name in self.__slots__ if name != "name"}
        return {"queue": self.queue, "cause": self.cause, "group": self.name, "jobs": self.jobs, **row}


@dataclass(slots=True)
class DeadAudit:
    """The audit. `dead`: how many fit the filters, of `looked` jobs in the dead sets; `unrecorded`: of them, deaths
    that the ledger never saw; `malformed`: members that are no job ids. `over_time`: deaths by first sight and cause
    (with `history` also of jobs that are gone). `now_ms`: the server's clock."""

    queues: list[str]
    now_ms: int = 0
    dead: int = 0
    looked: int = 0
    unrecorded: int = 0
    malformed: int = 0
    groups: dict[tuple[str, str, str], DeadGroup] = field(default_factory=dict)
    ages: Counter[str] = field(default_factory=Counter)
    over_time: Histogram = field(default_factory=Histogram)
    suspects: list[Suspect] = field(default_factory=list)
    suspect_count: int = 0
    bursts: list[Burst] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)
    vanished: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def ranked(self) -> list[DeadGroup]:
        """The groups, the largest first."""
        return sorted(self.groups.values(), key=lambda g: (-g.jobs, g.queue, g.cause, g.error))

    def across(self) -> list[tuple[tuple[str, str], Counter[str]]]:
        """Causes with their normalised errors that several queues share, and how many jobs of each queue died of it,
        the largest first."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for group in self.groups.values():
            found.setdefault((group.cause, group.error), Counter())[group.queue] += group.jobs
        shared = [(key, of) for key, of in found.items() if len(of) > 1]
        return sorted(shared, key=lambda pair: (-pair[1].total(), pair[0]))

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for JSON."""
        names = ("queues", "now_ms", "dead", "looked", "unrecorded", "malformed", "suspect_count", "vanished", "notes")
        return {name: getattr(self, name) for name in names} | {
            "groups": [group.as_row() for group in self.ranked()],
            "ages": {name: self.ages[name] for name in AGE_NAMES if self.ages[name]},
            "over_time": self.over_time.as_rows(),
            "suspects": [one.as_row() for one in self.suspects],
            "bursts": [one.as_row() for one in self.bursts],
            "interruptions": [cut.as_row() for cut in self.interruptions],
        }


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """`only_suspects` leaves out who is none; `history`: deaths of jobs that are gone are in `over_time` too; `burst`:
    so many counted stalls in one pass are one; `lease_ms`: the longest lease, for suspects."""

    only_suspects: bool = False
    history: bool = False
    burst: int = BURST
    lease_ms: int = LEASE_MS


_DEFAULTS = AuditOptions()


class DeadAuditor:
    """Audits dead sets while its caller walks through them: `jobs`, then `finish`. `found` is what was seen so far."""

    def __init__(
        self,
        server: Server,
        queues: Sequence[str],
        selection: DeadSelection,
        ledger: Ledger | None = None,
        options: AuditOptions = _DEFAULTS,
    ) -> None:
        self.server, self.selection, self.ledger, self.options = server, selection, ledger, options
        self.found = DeadAudit(sorted(queues))
        if ledger is not None:
            wanted = set(self.found.queues)
            self.found.interruptions = [cut for cut in interruptions.listing(ledger) if cut.queue in wanted]
            self.found.bursts = [one for one in bursts(ledger, least=options.burst) if one.queue in wanted]
            self.found.vanished = list(_vanished(ledger, self.found.interruptions))

    def jobs(self) -> Iterator[tuple[DeadJob, Suspect | None]]:
        """The dead jobs that fit, queue by queue, with why an interruption is suspected."""
        for queue in self.found.queues:
            yield from self._of_queue(queue)

    def _of_queue(self, queue: str) -> Iterator[tuple[DeadJob, Suspect | None]]:
        found, selection = self.found, self.selection
        here = [cut for cut in found.interruptions if cut.queue == queue]
        now = self.server.now_ms(queue)
        found.now_ms = max(found.now_ms, now)
        dead = DeadSet(self.server, queue, self.ledger, selection.payload, jobs=sorted(set(selection.jobs)) or None)
        for job in self._readable(dead):
            if not selection.takes(job, now):
                continue
            known = job.known
            why = suspect(queue, job.job, known, here, self.options.lease_ms) if known is not None and here else None
            if self.options.only_suspects and why is None:
                continue
            _count(found, job, why, now)
            yield job, why
        found.looked += dead.seen
        found.malformed += dead.malformed
        if dead.disorder:
            found.notes.append(f"{queue}: the dead set holds scores that are not 0; `emq-ops doctor` mends them")

    def _readable(self, dead: DeadSet) -> Iterator[DeadJob]:
        """The jobs of a dead set. One that is no such set does not keep the audit from the other queues: it is
        noted."""
        try:
            yield from dead
        except DamagedError as fault:
            if len(self.found.queues) == 1:
                raise
            self.found.notes.append(f"{dead.queue}: not audited: {fault}")

    def finish(self) -> DeadAudit:
        """The audit, with what should be noted. Raises EmptySelectionError where filters were given and nothing
        fits."""
        found, only_suspects = self.found, self.options.only_suspects
        if (self.selection.narrows or only_suspects) and not found.dead:
            raise nothing(found.queues, self.selection, *(["restart suspects"] if only_suspects else []))
        if self.options.history and self.ledger is not None:
            _add_history(found, self.ledger)
        _note(found, self.ledger)
        return found


def audit_dead(
    server: Server,
    queues: Sequence[str],
    selection: DeadSelection,
    ledger: Ledger | None = None,
    options: AuditOptions = _DEFAULTS,
    each: Callable[[DeadJob, Suspect | None], None] | None = None,
) -> DeadAudit:
    """Audits the dead sets of `queues`. `each` is called with every job that fits, while its page is at hand.

    Raises EmptySelectionError where filters were given and nothing fits; what the server and the ledger raise.
    """
    auditor = DeadAuditor(server, queues, selection, ledger, options)
    for job, why in auditor.jobs():
        if each is not None:
            each(job, why)
    return auditor.finish()


def _count(found: DeadAudit, job: DeadJob, why: Suspect | None, now_ms: int) -> None:
    found.dead += 1
    text = job.error_text
    key = (job.queue, job.cause, text)
    if key not in found.groups and len(found.groups) >= MOST_GROUPS:
        key = (job.queue, job.cause, OTHER)
    group = found.groups.get(key)
    if group is None:
        name = job.error_group if key[2] == text else ""
        group = found.groups[key] = DeadGroup(job.queue, job.cause, key[2], name)
    group.add(job)
    seen = job.first_seen_ms
    found.unrecorded += seen is None
    found.ages[age_class(None if seen is None else now_ms - seen)] += 1
    if seen is not None:
        found.over_time.add(seen, job.cause)
    if why is not None:
        group.suspects += 1
        found.suspect_count += 1
        if len(found.suspects) < MOST_SUSPECTS:
            found.suspects.append(why)


def _add_history(found: DeadAudit, ledger: Ledger) -> None:
    """Counts in `over_time` the deaths of jobs that are gone, too."""
    for queue in found.queues:
        for death in deaths.iterate(ledger, queue=queue, with_rows=False):
            if death.gone_ms is not None:
                found.over_time.add(death.first_seen_ms, death.cause)


def _vanished(ledger: Ledger, cuts: Sequence[Interruption]) -> Iterator[dict[str, Any]]:
    for cut in cuts:
        if cut.vanished:
            with ledger.read() as connection:
                lost = interruptions.vanished_of(connection, cut.id)
            for job, was in sorted(lost.items()):
                yield {"queue": cut.queue, "job": job, "was": was, "interruption": cut.id, "ended_ms": cut.ended_ms}


def _note(found: DeadAudit, ledger: Ledger | None) -> None:
    if ledger is None:
        found.notes.append("no state database: when and by whom jobs died is not known, nor what an interruption did")
    elif found.unrecorded:
        found.notes.append(
            f"{found.unrecorded} deaths were never recorded: first seen now, their killer unknown; a sweep, a trim or "
            "an act on them records them"
        )
    if ledger is not None:
        found.notes += competing(ledger, found.queues)
    if found.malformed:
        found.notes.append(f"{found.malformed} members of the dead sets are no job ids; see `emq-ops doctor`")
    if any(key[2] == OTHER for key in found.groups):
        found.notes.append(f"more than {MOST_GROUPS} different error texts: the rest is counted together")
