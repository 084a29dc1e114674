"""The comparison: (desired, applied, live) -> plan. Pure: no clock, no server, no database."""

from __future__ import annotations

from typing import Any

from emq_ops.deploy import loss, settings
from emq_ops.deploy.document import GLOBALS, Document
from emq_ops.deploy.effects import dead_effect, promote_effect, pump_faults, stalled_effect, stream_effect
from emq_ops.deploy.fields import changed, op_of, past_of, plain_of
from emq_ops.deploy.model import Drift, Field, LiveQueue, LiveServer, Op, Plan, Refusal, Step, Write
from emq_ops.deploy.moved import renames, with_renames
from emq_ops.deploy.plan_options import PlanOptions
from emq_ops.deploy.render import value
from emq_ops.deploy.setting_values import SettingValues
from emq_ops.deploy.variables import Past
from emq_ops.passes.registry import PASSES
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError

Json = dict[str, Any]


def plan(
    desired: Document,
    applied: Document | None,
    live: LiveServer,
    options: PlanOptions,
) -> Plan:
    """The steps from `applied` (with `Past` where a variable changed) and from what is `live` to `desired`. Raises
    BadInputError for a name to revert that nothing drifted under, and for a reference in a setting that does not
    resolve."""
    desired, before = desired.completed, (applied or Document.empty()).completed
    moved = renames(desired, before)
    before = with_renames(before, moved)
    work = _Planner(desired, before, live, options, moved)
    for queue in sorted({*desired.queues, *before.queues, *(queue for queue, _ in live.left)}):
        work.queue(queue)
    work.globs()
    # On the first apply they are no change of anything; but who looks at the file alone is shown all of it.
    for name in GLOBALS if applied is not None or options.offline else ():
        work.section(name)
    work.refuse_foreign()
    work.check_reverts()
    steps = work.steps
    for number, step in enumerate(steps, 1):
        step.number = number
    warnings = [*loss.lost_by_server(steps, live), *work.warnings, *_unmatched(live)]
    return Plan(steps, work.drift, warnings, work.refusals, live.interrupted, options.kind)


def _unmatched(live: LiveServer) -> list[str]:
    return [f"'{selector}' takes no queue yet" for selector in live.unmatched_optional]


_ABSENT = object()
"""Nobody manages this setting; None would be a value of it."""


class _Planner:
    def __init__(
        self, desired: Document, applied: Document, live: LiveServer, options: PlanOptions, moved: dict[str, str]
    ) -> None:
        self.desired, self.applied, self.live, self.env = desired, applied, live, options.env
        self.kind, self.offline, self._only = options.kind, options.offline, options.only
        self._renamed = moved
        self.steps: list[Step] = []
        self.drift: list[Drift] = []
        self.warnings: list[str] = []
        self.refusals: list[Refusal] = []
        self._foreign: dict[str, list[str]] = {}
        self._flat = settings.Flattened()
        self._diffs: dict[tuple[int, int], list[Field]] = {}
        self._left = live.left
        self._values = SettingValues(applied, live.left, options.env, options.digests)
        self._revert = list(options.revert)
        self._reverted: set[str] = set()

    def queue(self, queue: str) -> None:
        """Everything of one queue."""
        after, before = self.desired.queues.get(queue), self.applied.queues.get(queue)
        facts = self.live.of(queue)
        self.warnings += [f"{queue}: {said}; `emq-ops doctor` explains" for said in facts.damage]
        if facts.foreign is not None:
            self._foreign.setdefault(facts.foreign.what, []).append(queue)
        if self.kind == "destroy" and before and not after and before.get("protect"):
            self.refusals.append(Refusal(f"{queue}: protected", "apply it with protect: false first"))
        if after != before or queue in self._renamed:
            self._policies(queue, before or {}, after or {}, facts)
        self._settings(queue, before or {}, after or {}, facts)
        if not self.offline and self.kind != "destroy":
            refusals, warnings = pump_faults(queue, after or {}, facts, self.env)
            self.refusals += refusals
            self.warnings += warnings

    def _policies(self, queue: str, before: Json, after: Json, facts: LiveQueue) -> None:
        protected = bool(after.get("protect"))
        self._protect(queue, before, after)
        for one in PASSES:
            was, will = before.get(one.section), after.get(one.section)
            for name in sorted({*(was or {}), *(will or {})}) if one.many else [""]:
                old, new = ((was or {}).get(name), (will or {}).get(name)) if one.many else (was, will)
                if old == new and (queue not in self._renamed or not new):
                    continue
                address = f"{one.section}/{name}" if one.many else one.section
                step = self._step(queue, address, one.task().removesuffix(":"), old, new)
                if one.section == "stalled":
                    stalled_effect(step, facts)
                elif one.section == "promote":
                    promote_effect(step, facts)
                elif one.section == "dead":
                    self._dead(step, old, new, facts, protected)
                elif one.section == "streams":
                    archive = bool(self.desired.globals.get("archive"))
                    step.loss = loss.of_stream(old, new, self.env, archive=archive)
                    stream_effect(step, facts.streams.get(name), facts, protected=protected)

    def _dead(self, step: Step, old: Json | None, new: Json | None, facts: LiveQueue, protected: bool) -> None:
        step.loss = loss.of_dead(old, new, self.env)
        dead_effect(step, facts, protected=protected)
        if new and loss.switch(new.get("archive"), self.env) and not self.desired.globals.get("archive"):
            step.notes.append("archive: true, and there is no archive: section; nothing is trimmed until there is")

    def globs(self) -> None:
        """What changes for queues that come later: of a glob, where no queue that is there shows it."""
        after, before = self.desired.globs, self.applied.globs
        if after is None or before is None:
            return  # a revision of an earlier version does not tell
        known = {step.queue for step in self.steps if step.queue is not None}
        for selector in sorted({*after, *before}):
            old, new = before.get(selector) or {}, after.get(selector) or {}
            pattern = globs.compiled(selector)
            if (old == new and selector not in self._renamed) or any(pattern.fullmatch(queue) for queue in known):
                continue
            first = len(self.steps)
            self._policies(selector, old, new, LiveQueue())
            for step in self.steps[first:]:
                step.queue = None
                step.notes.append("for queues that come later" if not self.offline else "for each queue that it takes")

    def _protect(self, queue: str, before: Json, after: Json) -> None:
        was, will = bool(before.get("protect")), bool(after.get("protect"))
        if was == will:
            return
        op: Op = "create" if will else "delete"
        fields = [Field("protect", was or None, will or None)]
        self.steps.append(Step(0, op, f"{queue}/protect", queue, "protect", fields))

    def _step(self, queue: str, path: str, kind: str, before: Json | None, after: Json | None) -> Step:
        # Queues that one glob takes share their fields, and so what differs in them.
        key = (id(before), id(after))
        if key not in self._diffs:
            self._diffs[key] = changed(before, after, self.env)
        op: Op = "move" if before == after else op_of(before, after)
        step = Step(0, op, f"{queue}/{path}", queue, kind, self._diffs[key])
        self.steps.append(step)
        if before is not None and (was := self._renamed.get(queue)) is not None:
            step.notes.append(f"moved from {was}")
            if left := self.live.of(was).left.get(path):
                step.notes.append(f"{left} are left under {was}, and no pass sees to them")
        same = (
            one for name, one in (before or {}).items() if isinstance(one, Past) and str(one) == (after or {}).get(name)
        )
        step.notes += dict.fromkeys(one.why for one in same)
        return step

    def _settings(self, queue: str, before: Json, after: Json, facts: LiveQueue) -> None:
        old, new = self._flat.of(before.get("settings")), self._flat.of(after.get("settings"))
        for path in [*new, *(path for path in old if path not in new)]:
            self._setting(queue, path, old.get(path, _ABSENT), new.get(path, _ABSENT), facts)
        for name, path in self._left:
            if name == queue and path not in old and path not in new:
                self._moved(facts, queue, path, self._left[name, path][0], facts.settings.get(path))

    def _setting(self, queue: str, path: str, old: Any, new: Any, facts: LiveQueue) -> None:
        had, has = old is not _ABSENT, new is not _ABSENT
        address = f"{queue}/{path}"
        nothing = settings.unset(path)
        known = path in facts.settings
        now = facts.settings.get(path, nothing)
        past = past_of(old)
        if past and has and old == new:  # both as it was applied: what is asked is what moved since
            if known and not self._values.as_applied(path, old, now):
                self._moved(facts, queue, path, plain_of(old), now)
            return
        will = settings.resolved(path, new, self.env) if has else nothing
        if past:
            was = now if self._values.as_applied(path, old, now) else old
        else:
            was = settings.resolved(path, old, self.env) if had else nothing
        if had and has and old == new:
            if known and now != will:
                self._moved(facts, queue, path, will, now)
            return
        op: Op = "update" if had and has else "create" if has else "delete"
        if past and has:
            told = Field(path, plain_of(was), will)
        else:
            told = Field(path, old if had else None, new if has else None)
        step = Step(0, op, address, queue, "setting", [told], notes=list(dict.fromkeys(one.why for one in past)))
        self.steps.append(step)
        if self.kind == "destroy":
            step.notes.append(f"stays {value(now)} on the server, managed no more")
            return
        by_us = self._values.by_us(queue, path, now)
        lost = self._values.lost(facts, path, now)
        if not has and known and now != was and not by_us:
            step.notes.append(LOST if lost else f"was moved to {value(now)} by hand: left alone")
            step.so_already = now == nothing
        elif path in facts.unreadable:
            step.notes.append(f"not written: {facts.unreadable[path]}; `emq-ops doctor` explains")
        elif known and now == will:
            if by_us:
                step.notes.append("done by the interrupted apply")
            elif now != was:  # moved by hand, or nobody's until now
                step.notes.append("is so on the server already")
            step.so_already = not by_us and (now != was or not had)
        else:
            step.write = Write(path, now if known else was, will)
            if had and known and now != was and not by_us:
                step.notes.append(LOST if lost else f"was moved to {value(now)} by hand")
            elif not had and known and now != nothing:
                step.notes.append(f"is {value(now)} on the server")

    def _moved(self, facts: LiveQueue, queue: str, path: str, will: Any, now: Any) -> None:
        """A setting that is not as it was applied: left behind by us, put back if asked, or shown as drift."""
        address = f"{queue}/{path}"
        if self._values.by_us(queue, path, now):
            step = Step(0, "repair", address, queue, "setting", [Field(path, now, will)], Write(path, now, will))
            step.notes.append("left behind by the interrupted apply")
            self.steps.append(step)
            return
        if (queue, path) in self._left and path not in self._managed(queue):
            return
        if self._only is not None and queue not in self._only:
            return
        names = [name for name in self._revert if name in ("all", address, queue)]
        if not names and self._values.lost(facts, path, now):
            self.steps.append(
                Step(0, "restore", address, queue, "setting", [Field(path, now, will)], Write(path, now, will))
            )
            return
        if path in facts.unreadable:
            if names:
                self.warnings.append(
                    f"{address} can't be put back: {facts.unreadable[path]}; `emq-ops doctor` explains"
                )
            self._reverted.update(names)
        if not names or path in facts.unreadable:
            self.drift.append(Drift(address, queue, path, will, now))
            return
        self._reverted.update(names)
        self.steps.append(
            Step(0, "revert", address, queue, "setting", [Field(path, now, will)], Write(path, now, will))
        )

    def _managed(self, queue: str) -> dict[str, Any]:
        return settings.flat((self.desired.queues.get(queue) or {}).get("settings"))

    def section(self, name: str) -> None:
        """A section that is not of one queue."""
        before, after = self.applied.globals.get(name), self.desired.globals.get(name)
        if before == after or (not before and not after):
            return
        old = {"windows" if name == "maintenance" else name: before} if isinstance(before, list) else before
        new = {"windows" if name == "maintenance" else name: after} if isinstance(after, list) else after
        step = Step(0, op_of(before or None, after or None), name, None, name, changed(old, new, self.env))
        if name == "archive" and self.kind != "destroy":
            step.loss = loss.of_archive(before, after)
            if before and after and (before.get("remote") or {}).get("url") != (after.get("remote") or {}).get("url"):
                step.notes.append("records archived so far stay where they are")
                step.moves = True
        if name in _AT_START and self.kind != "destroy":
            step.notes.append("a daemon that runs takes this over at its next start")
        self.steps.append(step)

    def refuse_foreign(self) -> None:
        """One refusal for the queues of one other state."""
        for what, queues in self._foreign.items():
            fault = self.live.of(queues[0]).foreign
            more = f" and {len(queues) - 3} more" if len(queues) > 3 else ""
            self.refusals.append(Refusal(f"{', '.join(queues[:3])}{more}: {what}", fault.fix if fault else None))

    def check_reverts(self) -> None:
        """Every name given to revert must have meant something."""
        for name in self._revert:
            if name != "all" and name not in self._reverted:
                drifted = sorted({d.address for d in self.drift} | {s.address for s in self.steps if s.op == "revert"})
                raise BadInputError(
                    f"nothing drifted under '{name}'",
                    where="--revert",
                    fix=f"one of: {', '.join(drifted)}" if drifted else "nothing drifted at all",
                )


LOST = "was lost with the server's data"
_AT_START = ("server", "http")
"""Sections that a running daemon does not follow."""
