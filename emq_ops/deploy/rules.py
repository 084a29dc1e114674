"""What every plan must keep to: conditions about queues, in the language of ``when``, from the YAML or a file of rules.

plan_rules:
  - {when: "queue.name matches 'prod-*'", must: "dead.archive and dead.keep >= 1000", say: no death is lost}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emq_ops.config.explain import explain, locate
from emq_ops.config.loader import Loaded
from emq_ops.config.models import PassSection, RuleSection
from emq_ops.deploy.document import Document
from emq_ops.deploy.model import Refusal
from emq_ops.passes.registry import PASSES
from emq_ops.policy.kinds import TEXT
from emq_ops.policy.options import Listed, Nested, keys, option
from emq_ops.policy.reading import Reader
from emq_ops.policy.words import nearest
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.syntax.errors import Position, SourceError
from emq_ops.syntax.tree import MAX_BYTES, ListTree, MapTree, Tree, parse, plain

if TYPE_CHECKING:
    from emq_ops.syntax.expressions import Condition

Json = dict[str, Any]
SHOWN_QUEUES = 3
_SINGLE = {one.section: one.policy for one in PASSES if not one.many and not one.of_archive}
_MANY = {one.section: one.policy for one in PASSES if one.many}
NAMES = ("queue", "settings", *_SINGLE, *_MANY)
_QUEUE = ("name", "protect")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, read and checked."""

    when: Condition
    must: Condition
    say: str | None
    mark: Position


@dataclass(frozen=True, kw_only=True)
class _RuleFile:
    plan_rules: tuple[RuleSection, ...] = option(Listed(Nested(RuleSection)))
    note: str | None = option(TEXT, None)


def rules_of(loaded: Loaded, files: Iterable[Path] = ()) -> list[Rule]:
    """The rules of a config, and of files beside it. Raises SourceError with the line, BadInputError for a file that
    can't be read."""
    found = _rules(loaded.config.plan_rules, loaded.tree)
    for path in files:
        try:
            with path.open("rb") as file:
                text = file.read(MAX_BYTES + 1)
        except OSError as fault:
            raise BadInputError(f"can't read the rules: {fault.strerror}", where=str(path)) from None
        tree = parse(text, str(path))
        whole = MapTree(tree.mark, {"plan_rules": (tree.mark, tree)}, 1) if isinstance(tree, ListTree) else tree
        reader = Reader({}, defer=True)
        read = reader.section(_RuleFile, plain(whole))
        if read is None:
            raise explain(reader.faults, whole if isinstance(whole, MapTree) else MapTree(tree.mark, {}, 1))
        found += _rules(read.plan_rules, whole)
    return found


def _rules(sections: Iterable[RuleSection], tree: Tree) -> list[Rule]:
    rules: list[Rule] = []
    for number, section in enumerate(sections):
        path = ("plan_rules", number)
        when, must = (
            _condition(text, locate(tree, (*path, name))[0])
            for name, text in (("when", section.when), ("must", section.must))
        )
        rules.append(Rule(when, must, section.say, locate(tree, path)[0]))
    return rules


def _condition(text: str, mark: Position) -> Condition:
    from emq_ops.syntax.expressions import Condition  # and jinja2: hardly any plan has a rule

    found = Condition.read(text, mark, NAMES)
    for name, *fields in found.compiled.reads if found.compiled else ():
        known = _fields_of(name)
        if known and fields and fields[0] not in known:
            near = nearest(fields[0], known)
            fix = f"did you mean '{name}.{near}'?" if near else f"there are: {', '.join(known)}"
            raise SourceError(f"unknown name '{name}.{fields[0]}'", mark, fix=fix)
    return found


def _fields_of(name: str) -> tuple[str, ...]:
    if name == "queue":
        return _QUEUE
    return ("enabled", *keys(_SINGLE[name])) if name in _SINGLE else ()


def broken(rules: Sequence[Rule], document: Document, env: Mapping[str, str]) -> list[Refusal]:
    """What of `document` breaks a rule, one refusal a rule, with its line. Raises SourceError for a condition that
    can't be told."""
    if not rules:
        return []
    entries = {**document.queues, **(document.globs or {})}
    sections = _Sections(env)
    values = {queue: _values(queue, entry, sections) for queue, entry in entries.items()}
    out: list[Refusal] = []
    for rule in rules:
        queues = [queue for queue, told in values.items() if rule.when.holds(told) and not rule.must.holds(told)]
        if queues:
            more = f" and {len(queues) - SHOWN_QUEUES} more" if len(queues) > SHOWN_QUEUES else ""
            names = ", ".join(map(one_line, queues[:SHOWN_QUEUES])) + more
            why = f": {rule.say}" if rule.say else ""
            what = f"{names}: the rule of {rule.mark} wants {rule.must.source}{why}"
            out.append(Refusal(what, "change the YAML, or the rule"))
    return out


def _values(queue: str, entry: Json, sections: _Sections) -> Json:
    """What a condition reads of one queue: durations in ms, sizes in bytes, `enabled` in each policy."""
    found: Json = {"queue": {"name": queue, "protect": bool(entry.get("protect"))}}
    found["settings"] = entry.get("settings") or {}
    for section, policy in _SINGLE.items():
        found[section] = sections.fields(policy, entry.get(section))
    for section, policy in _MANY.items():
        found[section] = {name: sections.fields(policy, one) for name, one in (entry.get(section) or {}).items()}
    return found


class _Sections:
    """Sections as conditions read them, each once: queues that say the same share theirs."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._known: dict[tuple[type[Any], int], Json] = {}

    def fields(self, policy: type[Any], said: Json | None) -> Json:
        place = (policy, id(said))
        if place not in self._known:
            usual = {name: key.default for name, key in keys(policy).items()}
            read = Reader(self._env, defer=True).values(policy, said or {}, beside=PassSection)
            values = {**usual, **(said or {} if read is None else read)}
            plain_values = {name: _plain(value) for name, value in values.items()}
            self._known[place] = {"enabled": said is not None, **plain_values}
        return self._known[place]


def _plain(value: Any) -> Any:
    """A value as a condition takes it: an interval in ms, whatever else is no plain value as its text."""
    if value is None or isinstance(value, str | int | float | bool | list | dict):
        return value
    return getattr(value, "ms", None) or getattr(value, "text", None) or str(value)
