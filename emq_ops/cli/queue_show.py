"""``emq-ops queue show``: one queue, all that is known of it, and what to do next."""

from __future__ import annotations

import sys
from typing import Any

import typer

from emq_ops.cli.config import value_rows
from emq_ops.cli.context import CommandContext
from emq_ops.cli.many import several
from emq_ops.cli.options import QueuesArg
from emq_ops.cli.output import counted, emit_one, emit_rows, say
from emq_ops.cli.queues import pick
from emq_ops.cli.table import look
from emq_ops.overview.detail import QueueDetail, detail_of, lane_row
from emq_ops.overview.look import QueueLook
from emq_ops.overview.overview import QueueStanding, standings
from emq_ops.overview.words import ago, span
from emq_ops.protocol.errors import one_line

SHOWN_LANES = 10
_RUNS = ("id", "kind", "status", "when", "by", "counts", "error")


def show(ctx: typer.Context, queues: QueuesArg) -> None:
    """Show queues: what waits and runs, what to do next, its lanes, repeatables, policy, last passes, deaths.

    Each value of the policy stands with the line that it comes from.

    Examples:

      emq-ops queue show orders

      emq-ops queue show 'mail-*' --output json
    """
    context, rows = CommandContext.of(ctx), []
    with context.server("queue") as server, context.ledger_if_there() as ledger:
        names = pick(context, queues, server)
        effective = {name: context.layers.effective(name) for name in names}
        found = standings(
            server,
            names,
            ledger,
            protected=[name for name in names if effective[name].protect],
            streams={name: list(effective[name].streams) for name in names},
        )
        for standing in found:
            detail, policy = detail_of(server, standing, ledger), value_rows(effective[standing.queue])
            if context.output != "table":
                rows.append(detail.as_row() | {"policy": policy})
                continue
            if standing.queue != names[0]:
                sys.stdout.write("\n")
            _sections(detail, standing, policy)
    if context.output != "table" and several(queues, names):
        context.emit_rows(rows, list(rows[0]))
    elif rows:
        context.emit_one(rows[0])


def _sections(detail: QueueDetail, standing: QueueStanding, policy: list[dict[str, Any]]) -> None:
    seen = standing.look
    if seen is None:
        say(f"emq-ops: {standing.fault}")
    else:
        emit_one(_facts(standing, seen), "table")
    now = seen.now_ms if seen is not None else 0
    steps = detail.next_steps
    told = [f"what to do next: {counted(len(steps), 'thing')}"] if steps else ["nothing is wrong with it"]
    told += [f"  {one_line(line)}" for step in steps for line in (step.text, f"  {step.fix}")]
    sys.stdout.write("\n" + "\n".join(told) + "\n")
    lanes = [lane_row(one) for one in detail.lanes[: None if look.verbose else SHOWN_LANES]]
    more = len(detail.lanes) - len(lanes)
    _part(f"lanes, by need ({more} more: emq-ops lane ls {standing.queue})" if more > 0 else "lanes, by need", lanes)
    repeats = [
        {
            "name": one.name,
            "every": one.cron or ("?" if one.every_ms is None else span(one.every_ms)),
            "next": ago(one.next_ms, now) if one.next_ms else "not known yet",
            "lane": one.lane or "flat",
        }
        for one in detail.repeatables
    ]
    _part("repeatables", repeats)
    _part("policy, and where each value comes from", policy)
    _part("last passes", [_run(run.as_row(), now) for run in detail.runs], _RUNS)
    _part("deaths of the last day", [{"cause": cause, "jobs": n} for cause, n in sorted(detail.deaths.items())])
    for note in detail.notes:
        say(f"note: {note}")


def _part(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...] = ()) -> None:
    if rows:
        sys.stdout.write(f"\n{title}:\n")
        emit_rows(rows, "table", columns or tuple(rows[0]))


def _run(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    counts = ", ".join(f"{count} {name}" for name, count in row["counts"].items() if isinstance(count, int) and count)
    return row | {"when": ago(row["started_ms"], now_ms), "by": row["holder"], "counts": counts}


def _facts(standing: QueueStanding, look: QueueLook) -> dict[str, Any]:
    now, least = look.now_ms, ">= " if look.more_lanes else ""
    lanes = f" ({look.pending:,} flat, {least}{look.in_lanes:,} in {least}{look.lanes:,} lanes)" if look.lanes else ""
    facts = {
        "queue": standing.queue,
        "state": standing.state,
        "waiting": f"{least}{look.waiting:,}{lanes}",
        "oldest waiting": "" if look.oldest_ms is None else f"minted {ago(look.oldest_ms, now)}",
        "active": f"{look.active:,}" + (f" of at most {look.ceiling:,}" if look.ceiling is not None else ""),
        "oldest lease": ""
        if look.deadline_ms is None
        else f"lapses {ago(look.deadline_ms, now)}"
        if look.deadline_ms > now
        else f"lapsed {ago(look.deadline_ms, now)}",
        "scheduled": f"{look.scheduled:,}" + (f", the first {ago(look.due_ms, now)}" if look.due_ms else ""),
        "dead": f"{look.dead:,}",
        "last death": ago(standing.last_death_ms, now),
        "ended ever": f"{look.completed:,} completed, {look.failed:,} dead",
        "hold": "" if standing.hold is None else f"by {standing.hold.holder}, ends {ago(standing.hold.until_ms, now)}",
        "archive lag": "" if look.lag_ms is None else span(look.lag_ms),
        "leader": look.leader or "nobody",
    }
    return {name: value for name, value in facts.items() if value != ""}
