"""A plan drawn: text for a terminal, JSON for programs. Pure; hostile texts escaped."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from emq_ops.config.models import ArchiveSection, DaemonSection, ServerSection
from emq_ops.deploy.model import SIGNS, Plan, Step, instant
from emq_ops.passes.registry import PASSES
from emq_ops.policy.options import written
from emq_ops.protocol.errors import one_line

VERSION = 1
SHOWN_IDS = 5
FOLDED = 100
"""Of more settings than these, not each is told as it is written."""

_COLOURS = {"+": "32", "~": "33", "-": "31", "!": "35"}


def value(raw: Any) -> str:
    """A value as YAML would say it, on one line."""
    if raw is None:
        return "unset"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str):
        return one_line(raw)
    if isinstance(raw, dict):
        raw = {key: below for key, below in raw.items() if below is not None}
    if isinstance(raw, dict | list):
        return one_line(json.dumps(raw, ensure_ascii=False, sort_keys=True))
    return str(raw)


def effect_words(step: Step) -> str | None:
    """What a step will do, in words."""
    effect = step.effect
    if "dead" in effect:
        ids = effect["ids"]
        shown = ", ".join(ids[:SHOWN_IDS]) + (f", and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else "")
        return f"{effect['dead']} dead now, {effect['remove']} would go" + (f": {shown}" if ids else "")
    if "records" in effect:
        more = " or more" if effect.get("at_least") else ""
        return f"{effect['records']} records now, {effect['fold']} to fold, {effect['trim']}{more} would be trimmed"
    return None


def interrupted_words(plan: Plan) -> str | None:
    """The apply that did not end, in words."""
    cut = plan.interrupted
    if cut is None:
        return None
    where = f"interrupted in step {cut.step} of {cut.steps}" if cut.step else "interrupted before its first step"
    return f"an apply was {where} ({cut.holder}, started {instant(cut.started_ms)}); the next apply goes on from here"


def summary(plan: Plan) -> str:
    """One line: how many of each."""
    counts = plan.counts()
    if not plan.steps and not plan.drift:
        return "Nothing to do."
    if not plan.changes:
        some = f"{len(plan.steps)} settings are" if len(plan.steps) != 1 else "1 setting is"
        managed = "managed" if all(step.op == "create" for step in plan.steps) else "on record"
        return f"Nothing changes: {some} so already; with the next apply they are {managed}."
    words = [
        f"{counts['+']} to add",
        f"{counts['~']} to change",
        f"{counts['-']} to remove",
        *([f"{counts['!']} drifted"] if counts["!"] else []),
    ]
    return ", ".join(words) + "."


def text(
    plan: Plan, *, colour: bool = False, unfolded: bool = False, told: Callable[[Step], Step] | None = None
) -> str:
    """For people. Every line that matters begins with its sign. Queues of which all is said alike are drawn once,
    unless `unfolded`. `told`: gives a step with its values as the file says them, of those that are drawn."""
    lines = list(_text_lines(plan, unfolded, told))
    return "\n".join(map(_paint, lines) if colour else lines) + "\n"


def _paint(line: str) -> str:
    match = re.match(r"\s*([+~!-]) ", line)
    return f"\x1b[{_COLOURS[match[1]]}m{line}\x1b[0m" if match else line


def _text_lines(plan: Plan, unfolded: bool, told: Callable[[Step], Step] | None) -> Iterator[str]:
    drawn = _Drawn()
    alike = {} if unfolded else _alike(plan.steps, drawn)
    drawn_as = {queue: first for first, others in alike.items() for queue in others}
    last = {step.queue: step.number for step in plan.steps if step.queue in alike}
    folded = [step for step in plan.steps if step.queue not in drawn_as]
    if words := interrupted_words(plan):
        yield f"! {words}"
        yield ""
    for step in folded:
        yield f"{SIGNS[step.op]} {one_line(step.address)}" + (
            "" if step.op in ("create", "update", "delete") else f" ({step.op})"
        )
        for field in drawn.fields(step) if told is None else shown_fields(told(step)):
            yield f"    {field}"
        if words := effect_words(step):
            yield f"    => {words}"
        for note in step.notes:
            yield f"    ({one_line(note)})"
        for reason in step.loss:
            yield f"    ! could lose data: {one_line(reason)}"
        if step.queue is not None and last.get(step.queue) == step.number:
            yield _like(step.queue, alike[step.queue], plan.steps)
    for drift in plan.drift:
        yield f"! {one_line(drift.address)}: applied {value(drift.applied)}, on the server {value(drift.live)}"
    if plan.drift:
        yield "    (somebody moved it; it stays so. `emq-ops apply --revert NAME` puts it back)"
    if plan.steps or plan.drift:
        yield ""
    for warning in plan.warnings:
        yield f"warning: {one_line(warning)}"
    for refusal in plan.refusals:
        yield f"refused: {one_line(str(refusal))}"
    yield summary(plan)
    if plan.losses:
        yield "Data could be lost: it takes --allow-loss to apply this."


class _Drawn:
    """The shown fields of steps, each once: steps of queues that one glob takes share their fields."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[str, ...]] = {}

    def fields(self, step: Step) -> tuple[str, ...]:
        """As `shown_fields`. The steps must outlive this."""
        if step.kind == "setting":  # which have fields of their own
            return tuple(shown_fields(step))
        key = (id(step.fields), step.op)
        if key not in self._known:
            self._known[key] = tuple(shown_fields(step))
        return self._known[key]


def _alike(steps: list[Step], drawn: _Drawn) -> dict[str, list[str]]:
    """The first of those queues of which all is said alike, with the others; none that stands alone."""
    said: dict[str, list[object]] = {}
    for step in steps:
        if step.queue is not None:
            words = effect_words(step) if step.effect else None
            told = (step.op, step.address[len(step.queue) :], drawn.fields(step), words, *step.notes, None, *step.loss)
            said.setdefault(step.queue, []).append(told)
    groups: dict[tuple[object, ...], list[str]] = {}
    for queue, all_of_it in said.items():
        groups.setdefault(tuple(all_of_it), []).append(queue)
    return {queues[0]: queues[1:] for queues in groups.values() if len(queues) > 1}


def _like(first: str, others: list[str], steps: list[Step]) -> str:
    """``+ 5 queues like mail-eu (mail-fr, mail-uk, mail-us ...)``."""
    signs = {SIGNS[step.op] for step in steps if step.queue == first}
    some = ", ".join(map(one_line, others[:3])) + (" ..." if len(others) > 3 else "")
    count = f"{len(others):,} queues" if len(others) > 1 else "1 queue"
    return f"{signs.pop() if len(signs) == 1 else '~'} {count} like {one_line(first)} ({some})"


def shown_fields(step: Step) -> Iterator[str]:
    """What a step changes, a line a field."""
    if step.kind == "setting" and len(step.fields) == 1:
        field = step.fields[0]
        if step.write is None and step.op == "create":
            yield value(field.after)
            return
        if step.write is None and step.op == "delete":
            return  # what becomes of the value stands in the notes
        before = field.before if step.write is None else step.write.expect
        yield f"{value(before)} -> {value(field.after)}"
        return
    if step.op == "delete":
        return
    usual = _defaults(step.kind) if step.op == "create" else {}
    for field in step.fields:
        if step.op == "create":
            if field.after is not None and (field.name in _ESSENTIAL or usual.get(field.name, ...) != field.after):
                yield f"{field.name}: {value(field.after)}"
        else:
            yield f"{field.name}: {value(field.before)} -> {value(field.after)}"


_ESSENTIAL = ("every", "max_stalled", "restart", "keep", "max_age", "archive")
_MODELS: dict[str, type[Any]] = {
    **{one.task().removesuffix(":"): one.policy for one in PASSES},
    "server": ServerSection,
    "archive": ArchiveSection,
    "daemon": DaemonSection,
}


@functools.cache
def _defaults(kind: str) -> dict[str, Any]:
    """The built-in values of a resource's fields: a new resource need not list them."""
    model = _MODELS.get(kind)
    return written(model()) if model is not None else {}


def as_json(plan: Plan) -> dict[str, Any]:
    """The stable, versioned form."""
    cut = plan.interrupted
    return {
        "format": "emq-ops/plan",
        "version": VERSION,
        "kind": plan.kind,
        "made": instant(plan.made_ms),
        "base_revision": plan.base,
        "changes": plan.changes,
        "summary": {
            "add": plan.counts()["+"],
            "change": plan.counts()["~"],
            "remove": plan.counts()["-"],
            "drift": len(plan.drift),
        },
        "interrupted": None
        if cut is None
        else {
            "apply": cut.apply,
            "holder": cut.holder,
            "started": instant(cut.started_ms),
            "step": cut.step,
            "steps": cut.steps,
        },
        "steps": [step_json(step) for step in plan.steps],
        "drift": [
            {"address": d.address, "queue": d.queue, "setting": d.setting, "applied": d.applied, "live": d.live}
            for d in plan.drift
        ],
        "warnings": plan.warnings,
        "refusals": [str(refusal) for refusal in plan.refusals],
        "losses": plan.losses,
    }


def step_json(step: Step) -> dict[str, Any]:
    """One step of `as_json`."""
    return {
        "number": step.number,
        "sign": SIGNS[step.op],
        "op": step.op,
        "address": step.address,
        "queue": step.queue,
        "kind": step.kind,
        "fields": [{"name": f.name, "before": f.before, "after": f.after} for f in step.fields],
        "write": None
        if step.write is None
        else {"setting": step.write.setting, "expect": step.write.expect, "value": step.write.value},
        "effect": step.effect,
        "loss": step.loss,
        "notes": step.notes,
    }
