"""How the screen of ``emq-ops top`` is drawn."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emq_ops.cli.top_screen import COLUMNS, Screen
from emq_ops.overview.watch import WatchedQueue
from emq_ops.overview.words import ago, span

LEAST_COLUMNS, LEAST_LINES = 60, 10
_WIDTHS = {"queue": 24, "wrong": 24, "done/s": 8, "died/min": 8, "oldest": 8, "lag": 7, "next": 8}
HELP = (
    "up, down, PgUp, PgDn, j, k  move          Enter  the queue, Esc back",
    "s, S  sort by the next, last column       /  only names that contain a text; Esc all",
    "!  only those with something wrong        p  pause or resume the queue",
    "r  requeue its dead, after a preview      ?  this; q  leave",
)


def draw(screen: Screen, columns: int, lines: int) -> RenderableType:
    """The whole screen at this size."""
    screen.height = lines
    if columns < LEAST_COLUMNS or lines < LEAST_LINES:
        return Text(f"{columns}x{lines} is too small: {LEAST_COLUMNS}x{LEAST_LINES} at least (q leaves)")
    parts: list[RenderableType] = [_head(screen, columns)]
    if screen.helping:
        parts += [Text(line) for line in HELP]
    elif screen.opened:
        parts.append(_detail(screen.found.get(screen.opened), screen.opened))
    else:
        parts.append(_table(screen, columns))
    return Group(*parts, _foot(screen))


def _head(screen: Screen, columns: int) -> Text:
    found = list(screen.found.values())
    looks = [one.standing.look for one in found]
    waiting, dead = (sum(getattr(look, name) for look in looks if look) for name in ("waiting", "dead"))
    wrong = sum(bool(one.standing.problems) for one in found)
    text = f"{screen.where}  {len(found):,} queues  {waiting:,} wait  {dead:,} dead  {wrong:,} with something wrong"
    head = Text(text[:columns], style="bold", no_wrap=True)
    return Text.assemble(head, Text(f"\n{screen.away}"[: columns + 1], style="bold red", no_wrap=True))


def _table(screen: Screen, columns: int) -> Table:
    kept = [*COLUMNS[:-1], "wrong"]
    while len(kept) > 6 and sum(_WIDTHS.get(name, 9) + 1 for name in kept) > columns:
        del kept[-2]
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="bold")
    for name in kept:
        mark = "*" if name == screen.sort else ""
        left = name in ("queue", "wrong")
        table.add_column(name + mark, justify="left" if left else "right", no_wrap=True, ratio=1 if left else None)
    names = screen.names
    first = screen.first(len(names))
    for place, name in enumerate(names[first : first + screen.rows], first):
        cells = _cells(screen.found[name])
        here = place == min(screen.at, len(names) - 1)
        style = "reverse" if here else ("red" if screen.found[name].standing.problems else "")
        table.add_row(*[Text(cells[column]) for column in kept], style=style)
    return table


def _foot(screen: Screen) -> Text:
    if screen.question is not None:
        return Text(f"{screen.question.text}  [y/n]", style="bold")
    if screen.typing:
        return Text(f"/{screen.text}_")
    only = f"  only '{screen.text}'" if screen.text else ""
    only += "  only unhealthy" if screen.unhealthy else ""
    return Text(screen.said or f"?: keys  sorted by {screen.sort}{only}", style="dim")


def _cells(one: WatchedQueue) -> dict[str, str]:
    look, standing = one.standing.look, one.standing
    if look is None:
        return {**dict.fromkeys(COLUMNS, ""), "queue": one.standing.queue, "wrong": str(standing.fault)}
    words = [standing.state] if standing.state else []
    words += [problem.text for problem in standing.problems]
    rate, died = one.rates.completed, one.rates.died
    return {
        "queue": standing.queue,
        "waiting": f"{'>=' if look.more_lanes else ''}{look.waiting:,}",
        "active": f"{look.active:,}",
        "scheduled": f"{look.scheduled:,}",
        "dead": f"{look.dead:,}",
        "done/s": "" if rate is None else f"{rate:,.1f}",
        "died/min": "" if died is None else f"{died * 60:,.0f}",
        "oldest": "" if look.oldest_ms is None else span(look.now_ms - look.oldest_ms),
        "lag": "" if look.lag_ms is None else span(look.lag_ms),
        "next": "" if one.next_ms is None else ago(one.next_ms, look.now_ms).removeprefix("in "),
        "wrong": "; ".join(words),
    }


def _detail(one: WatchedQueue | None, name: str) -> Group:
    if one is None:
        return Group(Text(f"{name}: gone"))
    cells = _cells(one)
    lines = [Text(f"{column:>10}  {cells[column]}") for column in COLUMNS[:-1]]
    look = one.standing.look
    if look is not None:
        lines.append(Text(f"{'lanes':>10}  {look.lanes:,}, {look.lanes_full:,} full, {look.lanes_paused:,} paused"))
        lines.append(Text(f"{'leader':>10}  {look.leader or 'nobody'}"))
    lines.append(Text(f"{'state':>10}  {one.standing.state or 'at work'}"))
    for problem in one.standing.problems:
        lines += [Text(f"! {problem.text}", style="red"), Text(f"  {problem.fix}")]
    return Group(*lines)
