"""Plots as inline SVG: no script, no font, no picture from elsewhere. Every text in them is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from emq_ops.audit.spread import Histogram
from emq_ops.audit.suspects import clock

WIDTH, HEIGHT = 920, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 16, 34
CAUSES = ("stalled", "error", "flow", "unknown")
"""Each has a colour of its own in the page's style sheet; drawn in this order, from the bottom."""


@dataclass(frozen=True, slots=True)
class Highlight:
    """A stretch of time that is drawn over the bars. `text`: what the pointer shows."""

    from_ms: int
    to_ms: int
    text: str


def _text(x: float, y: float, words: str, anchor: str = "middle", css: str = "tick") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="{}">{}</text>').format(x, y, anchor, css, words)


def _rect(x: float, y: float, width: float, height: float, css: str, title: str) -> Markup:
    shape = '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="{}"><title>{}</title></rect>'
    return Markup(shape).format(x, y, width, height, css, title)


def _frame(inner: Sequence[Markup], label: str, height: float = HEIGHT) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">').format(WIDTH, height, label)
    return head + Markup("").join(inner) + Markup("</svg>")


def nice_ceiling(value: int) -> int:
    """The next number of the form 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for step in (1, 2, 5):
            if step * power >= value:
                return step * power
        power *= 10


def over_time(histogram: Histogram, marks: Sequence[Highlight] = ()) -> Markup:
    """Stacked bars over time, a colour a cause, with `marks` over them. Empty where there is nothing to draw."""
    if not histogram.bins:
        return Markup("")
    first, last = min(histogram.bins), max(histogram.bins) + histogram.width_ms
    near = [mark for mark in marks if mark.to_ms >= first - (last - first) and mark.from_ms <= last]
    if near:  # an interruption shortly before the deaths belongs into the picture
        first = min(first, *(max(mark.from_ms, first - (last - first)) for mark in near))
    scale = (WIDTH - LEFT - RIGHT) / max(1, last - first)
    top = nice_ceiling(max(sum(counts.values()) for counts in histogram.bins.values()))
    rise = (HEIGHT - TOP - BOTTOM) / top
    ground = HEIGHT - BOTTOM
    out = _grid(top, rise, ground)
    for begin, counts in sorted(histogram.bins.items()):
        y = float(ground)
        for cause in [c for c in CAUSES if counts[c]]:
            height = counts[cause] * rise
            y -= height
            x, width = LEFT + (begin - first) * scale, max(1.5, histogram.width_ms * scale - 0.5)
            title = f"{counts[cause]} {cause}, {clock(begin)} to {clock(begin + histogram.width_ms)}"
            out.append(_rect(x, y, width, height, f"c-{cause}", title))
    for mark in near:
        x = LEFT + (max(mark.from_ms, first) - first) * scale
        width = max(2.0, (mark.to_ms - max(mark.from_ms, first)) * scale)
        out.append(_rect(x, TOP, width, ground - TOP, "mark", mark.text))
    out.append(_text(LEFT, HEIGHT - 12, clock(first), "start"))
    out.append(_text(WIDTH - RIGHT, HEIGHT - 12, clock(last), "end"))
    return _frame(out, "deaths over time by cause")


def _grid(top: int, rise: float, ground: float) -> list[Markup]:
    out: list[Markup] = []
    for part in (0, top // 2, top) if top > 1 else (0, 1):
        y = ground - part * rise
        line = '<line x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}" class="grid"/>'
        out.append(Markup(line).format(LEFT, y, WIDTH - RIGHT, y))
        out.append(_text(LEFT - 6, y + 4, str(part), "end"))
    return out


def bars(rows: Sequence[tuple[str, int, str]], label: str) -> Markup:
    """Horizontal bars: (words, count, css class), in the given order. Empty where there is nothing to draw."""
    if not rows:
        return Markup("")
    step, text_at = 24, 420
    most = max(1, *(count for _, count, _ in rows))
    scale = (WIDTH - text_at - 70) / most
    out: list[Markup] = []
    for place, (words, count, css) in enumerate(rows):
        y = place * step
        shown = words if len(words) <= 64 else words[:63] + "…"
        out.append(_text(text_at - 8, y + 16, shown, "end", "word"))
        out.append(_rect(text_at, y + 4, max(1.0, count * scale), step - 8, css, f"{count}: {words}"))
        out.append(_text(text_at + count * scale + 6, y + 16, str(count), "start"))
    return _frame(out, label, step * len(rows))


def shares(rows: Sequence[tuple[str, Mapping[str, int]]], kinds: Sequence[str], label: str) -> Markup:
    """One stacked bar a row: (words, count of each kind)."""
    if not rows:
        return Markup("")
    step, text_at = 24, 420
    most = max(1, *(sum(counts.values()) for _, counts in rows))
    scale = (WIDTH - text_at - 70) / most
    out: list[Markup] = []
    for place, (words, counts) in enumerate(rows):
        x, y = float(text_at), place * step
        out.append(_text(text_at - 8, y + 16, words if len(words) <= 64 else words[:63] + "…", "end", "word"))
        for kind in kinds:
            if counts.get(kind):
                out.append(_rect(x, y + 4, counts[kind] * scale, step - 8, f"o-{kind}", f"{counts[kind]} {kind}"))
                x += counts[kind] * scale
        out.append(_text(x + 6, y + 16, str(sum(counts.values())), "start"))
    return _frame(out, label, step * len(rows))
