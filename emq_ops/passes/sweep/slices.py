"""One slice of the sweep: the call of ``lua/sweep_pass.lua``, its reply, and the transaction that records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.database.engine import Connection
from emq_ops.ledger import interruptions, runs, stalls
from emq_ops.ledger.deaths import NO_ATTEMPTS, STALLED, Death, record
from emq_ops.ledger.snapshot import fingerprint_of, pack_row
from emq_ops.passes.frame.context import Context
from emq_ops.passes.observe.evidence import JudgingContext, LapsedLease, Verdict, judge
from emq_ops.passes.observe.rows import flow_parents, read_dead, token_of
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.errors import StateError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

SWEPT, UNRECORDED, BURST = "swept", "unrecorded", "burst"
RECOVERED, DEAD, EXEMPT, GHOST, FORCED = "recovered", "dead", "exempt", "ghost", "forced"
_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class SettledLease:
    """What a slice did with one lease. `outcome`: recovered, dead, exempt, ghost, forced; `stalls`: the row's count
    afterwards; `exemptions` in a row."""

    lease: LapsedLease
    outcome: str
    stalls: int
    group: str
    exemptions: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The reply of one call. `verdict`: swept, unrecorded (what an earlier pass did and nobody recorded), burst
    (`deaths` would die; nothing was done). `at_ms`: the server's clock when the slice was done."""

    verdict: str
    run: str
    number: int
    at_ms: int
    more: bool
    settled: tuple[SettledLease, ...] = ()
    deaths: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.run, self.number


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _settled(columns: Sequence[bytes]) -> SettledLease:
    job, outcome, deadline, attempts, epoch, stalls, group, exemptions = columns
    lease = LapsedLease(_text(job), score_ms(deadline), token_of(attempts), _text(epoch))
    return SettledLease(lease, _text(outcome), int(stalls), _text(group), int(exemptions))


Listed = tuple[str, bytes, bytes, bool]
"""A lease to settle: job, score, attempts, whether it is exempt."""


@dataclass(frozen=True, slots=True)
class SliceCall:
    """Slice `number` of `run`. `recorded`: the slice that the ledger has last; `most_deaths`: None for any number;
    `listed`: the leases to settle, None for whatever is due."""

    run: str
    number: int
    recorded: tuple[str, int] | None
    most_deaths: int | None
    listed: Sequence[Listed] | None = None


def run_slice(server: Server, fence: Fence, policy: StalledPolicy, asked: SliceCall) -> Slice:
    """Runs a slice. Raises FenceError, DamagedError."""
    k = fence.keys
    args: list[Arg] = [*fence.args, k.base, asked.run, asked.number, *(asked.recorded or ("", ""))]
    most = "" if asked.most_deaths is None else asked.most_deaths
    args += [policy.max_stalled, policy.limit, most, policy.max_exempt]
    args.append("all" if asked.listed is None else "listed")
    for job, score, attempts, exempt in asked.listed or ():
        args += [job, score, attempts, "exempt" if exempt else "count"]
    keys = [fence.key, k.swept, k.exempt, k.active, k.pending, k.dead]
    return _parse(server.run(load("sweep_pass"), keys, args), asked.run, asked.number)


def native_slice(server: Server, fence: Fence, policy: StalledPolicy, asked: SliceCall) -> Slice:
    """As `run_slice`, by the module's own command, which judges by epochs alone: `listed` and `most_deaths` are not for
    it. Raises StateError where script claims are seen."""
    k = fence.keys
    args: list[Arg] = [*fence.args, k.base, asked.run, asked.number, *(asked.recorded or ("", ""))]
    args += [policy.max_stalled, policy.limit]
    reply = server.run(load("sweep_native"), [fence.key, k.swept, k.active, k.pending, k.dead], args)
    if reply[0] == b"script-claims":
        raise StateError(
            f"EMQSTATE {len(reply[3])} lapsed leases have no epoch: scripts claimed them, and would never be counted",
            where=k.queue,
            fix="executor: script",
        )
    return _parse(reply, asked.run, asked.number)


def _parse(reply: Any, run: str, number: int) -> Slice:
    verdict, now, more, facts = reply
    if verdict == b"burst":
        return Slice(BURST, run, number, int(now), True, deaths=int(facts[0]))
    rows = [_settled(facts[i : i + _COLUMNS]) for i in range(3, len(facts), _COLUMNS)]
    return Slice(_text(verdict), _text(facts[0]), int(facts[1]), int(facts[2]), more == 1, tuple(rows))


def verdicts_of(connection: Connection, judging: JudgingContext, settled: Sequence[SettledLease]) -> dict[str, Verdict]:
    """Which life each lease was of, with the census entries that this takes."""
    return judge_all(connection, judging, [s.lease for s in settled])


def judge_all(connection: Connection, judging: JudgingContext, leases: Sequence[LapsedLease]) -> dict[str, Verdict]:
    """`judge` for many leases, reading the census once."""
    entries: Mapping[str, Any] = {}
    if judging.interruption is not None and judging.interruption.census_ms is not None:
        entries = interruptions.census_of(connection, judging.interruption.id, [lease.job for lease in leases])
    full = JudgingContext(
        judging.run_id, judging.windows, judging.interruption, judging.epoch_proves, entries, judging.lease_ms
    )
    return {lease.job: judge(lease, full) for lease in leases}


@dataclass(frozen=True, slots=True)
class SliceTotals:
    """A recorded slice in numbers and names. `fresh`: it was not recorded before."""

    fresh: bool
    recovered: list[str]
    exempted: list[str]
    forced: list[str]
    dead: list[Death]
    ghosts: list[str]

    def counts(self) -> dict[str, int]:
        """As the ledger adds them up; `recovered` includes the exempted and the forced."""
        numbers = {"recovered": len(self.recovered), "exempted": len(self.exempted), "forced": len(self.forced)}
        numbers |= {"dead": len(self.dead), "ghosts": len(self.ghosts)}
        return {name: n for name, n in numbers.items() if n}


def record_slice(context: Context, judging: JudgingContext, done: Slice) -> SliceTotals:
    """Puts a slice into the ledger, in one transaction and once: the run's counts, each death with row and logs, what
    it did with leases of an earlier life."""
    queue, keys = context.queue, keys_of(context.queue)
    names: dict[str, list[str]] = {RECOVERED: [], EXEMPT: [], FORCED: [], DEAD: [], GHOST: []}
    for one in done.settled:
        names[one.outcome].append(one.lease.job)
    rows = read_dead(context.server, keys, names[DEAD])
    flows = flow_parents(context.server, keys, names[DEAD])
    with context.ledger.write() as connection:
        verdicts = verdicts_of(connection, judging, done.settled)
        dying = [one for one in done.settled if one.outcome == DEAD]
        dead = [_death(s, done, verdicts[s.lease.job], rows, flow=s.lease.job in flows) for s in dying]
        back = names[RECOVERED] + names[EXEMPT] + names[FORCED]
        tally = SliceTotals(True, back, names[EXEMPT], names[FORCED], dead, names[GHOST])
        runs.adopt(connection, done.run, "sweep", queue)
        if not runs.add_slice(connection, done.run, done.number, tally.counts()):
            return SliceTotals(False, back, names[EXEMPT], names[FORCED], dead, names[GHOST])
        record(connection, queue, dead)
        stalls.note(connection, queue, [_stall(one, done, verdicts[one.lease.job]) for one in done.settled])
        if judging.interruption is not None:
            words = {RECOVERED: "recovered", EXEMPT: "exempted", FORCED: "recovered", DEAD: "died"}
            across = {
                one.lease.job: words[one.outcome]
                for one in done.settled
                if one.outcome in words and verdicts[one.lease.job].interruption == judging.interruption.id
            }
            interruptions.settle(connection, judging.interruption.id, across)
    return tally


def _stall(one: SettledLease, done: Slice, verdict: Verdict) -> stalls.Stall:
    return stalls.Stall(
        job=one.lease.job,
        attempts=NO_ATTEMPTS if one.lease.attempts is None else one.lease.attempts,
        at_ms=done.at_ms,
        deadline_ms=one.lease.deadline_ms,
        outcome=one.outcome,
        stalls=one.stalls,
        evidence="max-exempt" if one.exemptions and one.outcome in (DEAD, FORCED) else verdict.evidence,
        interruption=verdict.interruption,
        run=done.run,
    )


def _death(
    one: SettledLease, done: Slice, verdict: Verdict, rows: Mapping[str, tuple[list[bytes], list[bytes]]], *, flow: bool
) -> Death:
    row = rows.get(one.lease.job)
    attempts = NO_ATTEMPTS if one.lease.attempts is None else one.lease.attempts
    return Death(
        job=one.lease.job,
        attempts=attempts,
        stalls=one.stalls,
        first_seen_ms=done.at_ms,
        cause=STALLED,
        last_error=b"stalled",
        killed_by=done.run,
        found_by=done.run,
        deadline_ms=one.lease.deadline_ms,
        epoch=one.lease.epoch or None,
        evidence="max-exempt" if one.exemptions else verdict.evidence,
        interruption=verdict.interruption,
        flow=flow,
        snapshot=pack_row(*row) if row is not None else None,
        fingerprint=fingerprint_of(*row) if row is not None else None,
    )
