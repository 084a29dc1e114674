"""One self-contained HTML page of an audit: inline style, inline SVG, nothing from elsewhere, every text escaped."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from emq_ops.audit import plots
from emq_ops.audit.dead import DeadAudit, DeadGroup
from emq_ops.audit.life import JobLife
from emq_ops.audit.restarts import InterruptionOutcome, RestartAudit
from emq_ops.audit.server_events import SUMS, ServerEvent, format_count, group_by_event
from emq_ops.audit.spread import AGE_NAMES
from emq_ops.audit.suspects import Burst, clock
from emq_ops.audit.whatif import WhatIf
from emq_ops.passes.acts.errortext import text_of
from emq_ops.protocol.errors import one_line

MOST_ROWS = 500
TOP = 12
SAMPLE = 300
Row = dict[str, str]
_SHORT = {"group", "pass", "job"}
_OUTCOMES = ("exempted", "recovered", "died", "vanished", "others")


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("emq_ops.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


def _cell(value: Any) -> str:
    """Any value as one line: control characters can't hide or turn text."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return text_of(value, SAMPLE)
    if isinstance(value, list | tuple):
        return ", ".join(_cell(v) for v in value)
    text = one_line(str(value))
    return text if len(text) <= 4 * SAMPLE else f"{text[: 4 * SAMPLE]}… ({len(text)} characters)"


def _columns(*names: str, numbers: Iterable[str] = (), codes: Iterable[str] = ()) -> list[dict[str, Any]]:
    return [
        {
            "name": n,
            "title": n.replace("_", " "),
            "number": n in set(numbers),
            "code": n in set(codes),
            "short": n in _SHORT,
        }
        for n in names
    ]


def _tiles(**values: Any) -> list[Row]:
    return [{"title": name.replace("_", " "), "value": _cell(value)} for name, value in values.items()]


def _rows(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    return [{name: _cell(value) for name, value in row.items()} for row in rows]


def _when(ms: int | None) -> str:
    return clock(ms) if ms is not None else "not recorded"


def dead_page(audit: DeadAudit, title: str = "Dead jobs") -> str:
    """The page of `audit_dead`."""
    ranked = audit.ranked()
    marks = [
        plots.Highlight(
            *(cut.started_ms or cut.ended_ms, cut.ended_ms),
            _cell(f"{cut.queue}: {cut.kind}, ended {clock(cut.ended_ms)}"),
        )
        for cut in audit.interruptions
    ]
    top = [(_label(group), group.jobs, f"c-{group.cause}") for group in ranked[:TOP]]
    return _render(
        "dead.html",
        title=title,
        subtitle=_cell(f"{', '.join(audit.queues) or 'no queue'} at {clock(audit.now_ms)}"),
        notes=[one_line(note) for note in audit.notes],
        tiles=_tiles(
            dead=audit.dead,
            groups=len(ranked),
            restart_suspects=audit.suspect_count,
            bursts=len(audit.bursts),
            interruptions=len(audit.interruptions),
            vanished=len(audit.vanished),
        ),
        over_time=plots.over_time(audit.over_time, marks),
        causes=audit.over_time.kinds(),
        bin=_span(audit.over_time.width_ms),
        top_errors=plots.bars(top, "top errors"),
        ages=plots.bars([(n, audit.ages[n], "c-plain") for n in AGE_NAMES if audit.ages[n]], "ages"),
        group_columns=_columns(
            *("queue", "cause", "group", "jobs", "error", "first_seen", "last_seen", "suspects", "examples", "sample"),
            numbers=("jobs", "suspects"),
            codes=("group", "error", "examples", "sample"),
        ),
        groups=_rows(map(_group, ranked[:MOST_ROWS])),
        groups_left=max(0, len(ranked) - MOST_ROWS),
        suspect_columns=_columns("queue", "job", "sure", "evidence", codes=("job",)),
        suspects=_rows(one.as_row() for one in audit.suspects[:MOST_ROWS]),
        suspects_left=max(0, audit.suspect_count - min(len(audit.suspects), MOST_ROWS)),
        **_bursts(audit.bursts),
        **_events(group_by_event(InterruptionOutcome(cut, None) for cut in audit.interruptions)),
        vanished_columns=_columns("queue", "job", "was", "interruption", codes=("job",)),
        vanished=_rows(audit.vanished[:MOST_ROWS]),
        vanished_left=max(0, len(audit.vanished) - MOST_ROWS),
    )


def restarts_page(audit: RestartAudit, title: str = "Interruptions") -> str:
    """The page of `audit_restarts`."""
    rows = [
        (_cell(f"{one.cut.queue}: {one.cut.kind} {clock(one.cut.ended_ms)}"), _shares(one))
        for one in audit.outcomes[-40:]
    ]
    events = group_by_event(audit.outcomes)
    return _render(
        "restarts.html",
        title=title,
        subtitle=format_count(events),
        notes=[one_line(note) for note in audit.notes],
        shares=plots.shares(rows, _OUTCOMES, "what became of the jobs in flight"),
        outcomes=_OUTCOMES,
        **_events(events),
        **_bursts(audit.bursts),
        named=[
            {
                "title": _cell(f"{one.cut.queue}: {one.cut.kind} that ended {clock(one.cut.ended_ms)}"),
                "jobs": _rows({"outcome": kind, "jobs": jobs} for kind, jobs in one.jobs.items()),
            }
            for one in audit.outcomes[-40:]
            if one.jobs
        ],
        job_columns=_columns("outcome", "jobs", codes=("jobs",)),
    )


def life_page(life: JobLife) -> str:
    """The page of `life_of`."""
    where = ", ".join(f"{place['queue']}: {place['state']}" for place in life.live) or "not on the server"
    kept = f", as the ledger keeps it, from {clock(life.kept_ms)}" if life.kept_ms is not None else ""
    events = [{"at": _when(e.at_ms), "source": e.source, "what": e.what, "text": e.text} for e in life.events]
    row = [{"field": name, "value": value} for name, value in life.row.items()]
    parts = [
        {"title": "Events", "columns": _columns("at", "source", "what", "text"), "rows": _rows(events)},
        {"title": f"Row{kept}", "columns": _columns("field", "value", codes=("field", "value")), "rows": _rows(row)},
        {"title": "Logs", "columns": _columns("line", codes=("line",)), "rows": _rows({"line": v} for v in life.logs)},
    ]
    tiles = _tiles(minted=clock(life.minted_ms), events=len(life.events))
    return _render("plain.html", title=f"Job {life.job}", subtitle=_cell(where), notes=[], tiles=tiles, parts=parts)


def whatif_page(found: WhatIf) -> str:
    """The page of `what_if`."""
    fates = _rows(fate.as_row() for fate in found.fates[:MOST_ROWS])
    more = len(found.fates) - MOST_ROWS
    notes = [*found.notes, *([f"{more} more jobs are not shown on this page"] if more > 0 else [])]
    columns = _columns(
        *("queue", "job", "verdict", "died", "would_die", "stalls"),
        numbers=("died", "would_die", "stalls"),
        codes=("job",),
    )
    return _render(
        "plain.html",
        title=f"What if max_stalled had been {found.max_stalled}",
        subtitle=_cell(", ".join(found.queues)),
        notes=[one_line(note) for note in notes],
        tiles=_tiles(jobs_that_stalled=found.jobs, died=found.died, would_have_died=found.would_die),
        parts=[{"title": "Who died, or would have", "columns": columns, "rows": fates}],
    )


def _label(group: DeadGroup) -> str:
    return one_line(f"{group.queue}: {group.error or group.cause}")


def _span(ms: int) -> str:
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms % unit == 0:
            return f"{ms // unit} {name}"
    return f"{ms // 1000} s"


def _group(group: DeadGroup) -> dict[str, Any]:
    seen = {"first_seen": _when(group.first_seen_ms), "last_seen": _when(group.last_seen_ms)}
    sample = text_of(group.sample, SAMPLE, group.sample_size) if group.sample is not None else ""
    return {**group.as_row(), **seen, "sample": sample}


def _shares(one: InterruptionOutcome) -> dict[str, int]:
    cut = one.cut
    recovered = cut.recovered - cut.exempted
    return {
        "exempted": cut.exempted,
        "recovered": recovered,
        "died": cut.died,
        "vanished": cut.vanished,
        "others": one.others or 0,
    }


def _bursts(found: Sequence[Burst]) -> dict[str, Any]:
    rows = [
        {"queue": b.queue, "at": clock(b.at_ms), "pass": b.run, "evidence": b.evidence, "jobs": b.jobs} for b in found
    ]
    return {
        "bursts": _rows(rows),
        "burst_columns": _columns("queue", "at", "pass", "evidence", "jobs", codes=("pass", "jobs")),
    }


def _events(found: Sequence[ServerEvent]) -> dict[str, Any]:
    rows = [
        event.as_row() | {"last_alive": _when(event.last_alive_ms), "back": clock(event.back_ms)} for event in found
    ]
    return {
        "interruptions": _rows(rows),
        "interruption_columns": _columns("queues", "kind", "last_alive", "back", *SUMS, numbers=SUMS),
    }
