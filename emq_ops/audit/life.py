"""The whole life of one job: what the ledger, the archive and the server know of it, in one order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.audit.suspects import clock
from emq_ops.ledger import acts, deaths, interruptions, runs, stalls
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.near_jobs import unknown_job
from emq_ops.passes.acts.errortext import text_of
from emq_ops.protocol.errors import BadInputError, DamagedError
from emq_ops.protocol.ids import job_id, parse
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.jobs import read_logs, read_row
from emq_ops.protocol.transitions.reads import JobState, job_state

TEXT = 400
MOST_LOGS = 50


@dataclass(frozen=True, slots=True)
class LifeEvent:
    """Something that happened to the job. `at_ms`: unix ms, None where it is not known; `source`: id, ledger, archive,
    stream or server; `what`: a word; `text`: a sentence; `facts`: the same for machines."""

    at_ms: int | None
    source: str
    what: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)

    def as_row(self) -> dict[str, Any]:
        """As a plain dict."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class JobLife:
    """A job. `live`: queue and state wherever it stands on the server (``damaged``, and why, where a key is not as the
    wire says); `row`: its fields there, long ones cut; `logs`: its last log lines; `kept_ms`: where it is not on the
    server, when the ledger saw this row and these logs last, None where they are the live ones; `events`: oldest
    first."""

    job: str
    minted_ms: int
    live: list[dict[str, str]] = field(default_factory=list)
    row: dict[str, str] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    kept_ms: int | None = None
    events: list[LifeEvent] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for JSON."""
        row = {name: getattr(self, name) for name in self.__slots__ if name != "events"}
        return {**row, "events": [event.as_row() for event in self.events]}


def life_of(
    job: str, *, server: Server | None, queues: Iterable[str], ledger: Ledger | None, archived: Iterable[LifeEvent] = ()
) -> JobLife:
    """Returns the life of `job`, looked for in `queues`. `archived`: what the archive has of it. Raises BadInputError:
    a malformed id, or one that nobody ever heard of."""
    life = JobLife(job_id(job), parse(job).unix_ms)
    events = [LifeEvent(life.minted_ms, "id", "minted", "its id was made")]
    archived = list(archived)
    records = sorted(event.at_ms for event in archived if event.what == "dead" and event.at_ms is not None)
    if ledger is not None:
        events += [*_interruptions(ledger, job), *_stalls(ledger, job)]
        events += [*_deaths(ledger, job, records, life.minted_ms), *_acts(ledger, job)]
    events += archived
    if server is not None:
        for queue in queues:
            _live(life, Queue(server, queue))
    if ledger is not None and not life.live:
        _kept(life, ledger)
    life.events = sorted(events, key=lambda event: (event.at_ms is None, event.at_ms or 0))
    if len(events) == 1 and not life.live:
        fix = "check the id; is it this server, state and archive?"
        if server is not None:
            raise unknown_job(server, job, list(queues), fix)
        raise BadInputError(f"no job {job}", fix=fix)
    return life


def _deaths(ledger: Ledger, job: str, records: Sequence[int], minted_ms: int) -> Iterable[LifeEvent]:
    """`records`: when records of streams say that it died, unix ms. The best evidence of the instant is taken: our own
    pass, else such a record, else it lies between the last thing that is known and the first sight."""
    last = minted_ms
    for death in deaths.iterate(ledger, job=job, with_rows=False):
        facts = {n: getattr(death, n) for n in ("queue", "attempts", "stalls", "cause", "killed_by", "evidence")}
        seen, recorded = death.first_seen_ms, [at for at in records if last <= at <= death.first_seen_ms]
        after = max(last, min(death.deadline_ms or 0, seen))
        at_ms, when = seen, ""
        if death.killed_by is None and recorded:
            at_ms, when = recorded[-1], f"; its record says when, first seen dead {clock(seen)}"
        elif death.killed_by is None:
            when = f"; that was first seen then, it died after {clock(after)}"
        facts |= {"first_seen_ms": seen, "not_before_ms": at_ms if death.killed_by or recorded else after}
        who = f"by {death.killed_by}" if death.killed_by else "by others"
        error = f": {text_of(death.last_error, TEXT)}" if death.last_error is not None else ""
        text = f"died in {death.queue} ({death.cause}, {who}) after {death.attempts} attempts, {death.stalls} stalls"
        yield LifeEvent(at_ms, "ledger", "died", text + when + error, facts)
        last = death.gone_ms or seen
        if death.gone_ms is not None:
            by = f" by {death.gone_by}" if death.gone_by else ""
            facts = {"queue": death.queue, "how": death.gone_how, "by": death.gone_by}
            yield LifeEvent(death.gone_ms, "ledger", str(death.gone_how), f"dead no more: {death.gone_how}{by}", facts)


def _stalls(ledger: Ledger, job: str) -> Iterable[LifeEvent]:
    for stall in stalls.iterate(ledger, job=job):
        text = (
            f"its lease of attempt {stall.attempts} in {stall.queue} had lapsed {clock(stall.deadline_ms)}: "
            f"{stall.outcome}, stall count {stall.stalls} (evidence: {stall.evidence}, pass {stall.run})"
        )
        facts = {n: getattr(stall, n) for n in ("queue", "attempts", "outcome", "stalls", "evidence", "run")}
        yield LifeEvent(stall.at_ms, "ledger", "stalled", text, facts)


def _acts(ledger: Ledger, job: str) -> Iterable[LifeEvent]:
    for item in acts.of_job(ledger, job):
        run = runs.find(ledger, item.run)
        who, why = (run.holder, str(run.policy.get("why") or "")) if run else ("unknown", "")
        kind, queue = (run.kind, run.queue) if run else ("act", "")
        text = f"{kind} by {who}: {item.status}" + (f" ({why})" if why else "")
        facts = {"run": item.run, "kind": kind, "queue": queue, "status": item.status, "who": who, "why": why}
        yield LifeEvent(item.at_ms, "ledger", kind, text, facts)
        if item.undone_by:
            undone = runs.find(ledger, item.undone_by)
            at_ms = undone.ended_ms or undone.started_ms if undone else None
            yield LifeEvent(at_ms, "ledger", "undone", f"brought back by {item.undone_by}", {"run": item.undone_by})


def _interruptions(ledger: Ledger, job: str) -> Iterable[LifeEvent]:
    for cut, outcome, was in interruptions.of_job(ledger, job):
        what = f"in flight across the {cut.kind} that ended {clock(cut.ended_ms)}"
        facts = {"queue": cut.queue, "interruption": cut.id, "kind": cut.kind, "outcome": outcome, "was": was}
        if was is not None:
            yield LifeEvent(
                cut.ended_ms, "ledger", "vanished", f"{was} before the {cut.kind}, lost by the server", facts
            )
        else:
            yield LifeEvent(
                cut.ended_ms, "ledger", "in flight", f"{what}: {outcome or 'settled by no sweep of ours'}", facts
            )


def _live(life: JobLife, q: Queue) -> None:
    try:
        state = job_state(q, life.job)
        if state is JobState.ABSENT:
            return
        place = {"queue": q.name, "state": state.value}
        row, logs = read_row(q, life.job) or {}, read_logs(q, life.job)
    except DamagedError as fault:  # what the ledger and the archive know is told all the same
        life.live.append({"queue": q.name, "state": "damaged", "why": str(fault)})
        return
    life.live.append(place)
    _show_row(life, row.items(), logs)


def _kept(life: JobLife, ledger: Ledger) -> None:
    """What it was when it was last seen dead."""
    for death in deaths.iterate(ledger, job=life.job):
        if death.snapshot is not None:
            contents = death.contents()
            _show_row(life, contents.fields, contents.logs)
            life.kept_ms = death.first_seen_ms


def _show_row(life: JobLife, row: Iterable[tuple[bytes, bytes]], logs: Sequence[bytes]) -> None:
    life.row = {text_of(name, 80): text_of(value, TEXT) for name, value in row}
    life.logs = [text_of(line, TEXT) for line in logs[-MOST_LOGS:]]
