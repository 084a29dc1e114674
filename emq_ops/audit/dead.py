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
from emq_ops.ledger import deaths as death_words
from emq_ops.ledger import interruptions as cuts
from emq_ops.ledger.interruptions import Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.deadset import DeadJob, DeadSet
from emq_ops.passes.selection import Selection, nothing
from emq_ops.protocol.errors import DamagedError
from emq_ops.protocol.ids import parse
from emq_ops.protocol.server import Server

EXAMPLES = 3
MOST_GROUPS = 2_000
MOST_SUSPECTS = 1_000
OTHER = "(other texts)"


@dataclass(slots=True)
class Group:
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
    groups: dict[tuple[str, str, str], Group] = field(default_factory=dict)
    ages: Counter[str] = field(default_factory=Counter)
    over_time: Histogram = field(default_factory=Histogram)
    suspects: list[Suspect] = field(default_factory=list)
    suspect_count: int = 0
    bursts: list[Burst] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)
    vanished: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def ranked(self) -> list[Group]:
        """The groups, the largest first."""
        return sorted(self.groups.values(), key=lambda g: (-g.jobs, g.queue, g.cause, g.error))

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


def fitting(
    out: DeadAudit,
    server: Server,
    queue: str,
    selection: Selection,
    ledger: Ledger | None = None,
    *,
    only_suspects: bool = False,
    lease_ms: int = LEASE_MS,
) -> Iterator[tuple[DeadJob, Suspect | None]]:
    """The dead jobs of one queue that fit, with why an interruption is suspected; they are counted in `out` on the
    way."""
    here = [cut for cut in out.interruptions if cut.queue == queue]
    now = server.now_ms(queue)
    out.now_ms = max(out.now_ms, now)
    dead = DeadSet(server, queue, ledger, selection.payload, jobs=sorted(set(selection.jobs)) or None)
    for job in _readable(dead, out):
        if not selection.takes(job, now):
            continue
        why = suspect(queue, job.job, job.known, here, lease_ms) if job.known is not None and here else None
        if only_suspects and why is None:
            continue
        _count(out, job, why, now)
        yield job, why
    out.looked += dead.seen
    out.malformed += dead.malformed
    if dead.disorder:
        out.notes.append(f"{queue}: the dead set holds scores that are not 0; `emq-ops doctor` mends them")


def _readable(dead: DeadSet, out: DeadAudit) -> Iterator[DeadJob]:
    """The jobs of a dead set. One that is no such set does not keep the audit from the other queues: it is noted."""
    try:
        yield from dead
    except DamagedError as fault:
        if len(out.queues) == 1:
            raise
        out.notes.append(f"{dead.queue}: not audited: {fault}")


def begin(queues: Sequence[str], ledger: Ledger | None, *, burst: int = BURST) -> DeadAudit:
    """An audit with what the ledger says of these queues, and nothing counted yet."""
    out = DeadAudit(sorted(queues))
    if ledger is not None:
        wanted = set(out.queues)
        out.interruptions = [cut for cut in cuts.listing(ledger) if cut.queue in wanted]
        out.bursts = [one for one in bursts(ledger, least=burst) if one.queue in wanted]
        out.vanished = list(_vanished(ledger, out.interruptions))
    return out


def finish(out: DeadAudit, selection: Selection, ledger: Ledger | None, *, only_suspects: bool = False) -> None:
    """Says what should be noted. Raises EmptySelectionError where filters were given and nothing fits."""
    if (selection.narrows or only_suspects) and not out.dead:
        raise nothing(out.queues, selection, *(["restart suspects"] if only_suspects else []))
    _notes(out, ledger)


def audit_dead(
    server: Server,
    queues: Sequence[str],
    selection: Selection,
    ledger: Ledger | None = None,
    *,
    only_suspects: bool = False,
    history: bool = False,
    burst: int = BURST,
    lease_ms: int = LEASE_MS,
    each: Callable[[DeadJob, Suspect | None], None] | None = None,
) -> DeadAudit:
    """Audits the dead sets of `queues`. `each` is called with every job that fits, while its page is at hand;
    `only_suspects` leaves out who is none; `lease_ms`: the longest lease, for suspects; `history`: deaths of jobs that
    are gone are in `over_time` too.

    Raises EmptySelectionError where filters were given and nothing fits; what the server and the ledger raise.
    """
    out = begin(queues, ledger, burst=burst)
    for queue in out.queues:
        for job, why in fitting(out, server, queue, selection, ledger, only_suspects=only_suspects, lease_ms=lease_ms):
            if each is not None:
                each(job, why)
    if history and ledger is not None:
        add_history(out, ledger)
    finish(out, selection, ledger, only_suspects=only_suspects)
    return out


def _count(out: DeadAudit, job: DeadJob, why: Suspect | None, now_ms: int) -> None:
    out.dead += 1
    text = job.error_text
    key = (job.queue, job.cause, text)
    if key not in out.groups and len(out.groups) >= MOST_GROUPS:
        key = (job.queue, job.cause, OTHER)
    group = out.groups.get(key)
    if group is None:
        name = job.error_group if key[2] == text else ""
        group = out.groups[key] = Group(job.queue, job.cause, key[2], name)
    group.add(job)
    seen = job.first_seen_ms
    out.unrecorded += seen is None
    out.ages[age_class(None if seen is None else now_ms - seen)] += 1
    if seen is not None:
        out.over_time.add(seen, job.cause)
    if why is not None:
        group.suspects += 1
        out.suspect_count += 1
        if len(out.suspects) < MOST_SUSPECTS:
            out.suspects.append(why)


def add_history(out: DeadAudit, ledger: Ledger) -> None:
    """Counts in `over_time` the deaths of jobs that are gone, too."""
    for queue in out.queues:
        for death in death_words.iterate(ledger, queue=queue, with_rows=False):
            if death.gone_ms is not None:
                out.over_time.add(death.first_seen_ms, death.cause)


def _vanished(ledger: Ledger, found: Sequence[Interruption]) -> Iterator[dict[str, Any]]:
    for cut in found:
        if cut.vanished:
            with ledger.read() as connection:
                lost = cuts.vanished_of(connection, cut.id)
            for job, was in sorted(lost.items()):
                yield {"queue": cut.queue, "job": job, "was": was, "interruption": cut.id, "ended_ms": cut.ended_ms}


def _notes(out: DeadAudit, ledger: Ledger | None) -> None:
    if ledger is None:
        out.notes.append("no state database: when and by whom jobs died is not known, nor what an interruption did")
    elif out.unrecorded:
        out.notes.append(
            f"{out.unrecorded} deaths were never recorded: first seen now, their killer unknown; a sweep, a trim or an "
            "act on them records them"
        )
    if ledger is not None:
        out.notes += competing(ledger, out.queues)
    if out.malformed:
        out.notes.append(f"{out.malformed} members of the dead sets are no job ids; see `emq-ops doctor`")
    if any(key[2] == OTHER for key in out.groups):
        out.notes.append(f"more than {MOST_GROUPS} different error texts: the rest is counted together")
