"""What holds for one queue: `defaults`, then every entry that matches, the most specific last, field by field."""

from __future__ import annotations

import marshal
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from emq_ops.config.explain import dotted
from emq_ops.config.loader import Loaded
from emq_ops.config.models import ARCHIVE_FIELDS, QueueSection, archived
from emq_ops.config.overlays import Layered, as_written, overlay
from emq_ops.config.sections import Alike, Fields, Sections
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.registry import PASSES
from emq_ops.policy.options import keys
from emq_ops.protocol import globs
from emq_ops.syntax.errors import BUILT_IN, Position, SourceError
from emq_ops.syntax.tree import MapTree, Scalar, Tree, plain

Items = dict[str, tuple[Position, Tree]]
_ARCHIVED = frozenset(one.section for one in PASSES if archived(one.policy))
_UPKEEP = frozenset(one.section for one in PASSES if one.of_archive)


@dataclass(frozen=True, slots=True)
class Value:
    """One effective value and the place that says it (`BUILT_IN` where no file does)."""

    path: str
    value: Any
    mark: Position


@dataclass(frozen=True, slots=True)
class Effective:
    """The policies and settings of one queue. `passes`: section -> fields, or name -> fields where a section holds
    several; what is absent or not enabled is left out. `layers`: what the files say for it, one over the other;
    `archive`: what they say for every archived section."""

    queue: str
    passes: dict[str, Any]
    settings: Fields
    protect: bool
    selectors: tuple[str, ...]
    layers: Layered = field(repr=False)
    archive: Items = field(repr=False)

    @property
    def stalled(self) -> Fields | None:
        """The fields of the sweep."""
        return self.passes.get("stalled")

    @property
    def dead(self) -> Fields | None:
        """The fields of the dead trim."""
        return self.passes.get("dead")

    @property
    def streams(self) -> dict[str, Fields]:
        """The fields of each stream's archive."""
        return self.passes.get("streams") or {}

    def sections(self) -> list[tuple[Pass, tuple[str, ...], Fields]]:
        """Every pass that is on, the path of its section, and its fields."""
        found: list[tuple[Pass, tuple[str, ...], Fields]] = []
        for one in PASSES:
            said = self.passes.get(one.section)
            if one.many:
                found += [(one, (one.section, name), fields) for name, fields in (said or {}).items()]
            elif said is not None:
                found.append((one, (one.section,), said))
        return found

    def values(self) -> list[Value]:
        """Every value with its place, by path."""
        out: list[Value] = []
        for _, head, fields in self.sections():
            out += [self._value((*head, name), value) for name, value in fields.items()]
        out += [self._value(("settings", *path), value) for path, value in flat_settings(self.settings)]
        out.append(self._value(("protect",), self.protect))
        return out

    def _value(self, path: tuple[str, ...], value: Any) -> Value:
        mark, said = self._said(path)
        return Value(".".join(path), as_written(value, said), mark)

    def said(self, path: tuple[str, ...], value: Any) -> Any:
        """`value`, or the text at `path` that says the same in other units."""
        return as_written(value, self._said(path)[1])

    def mark(self, path: tuple[str, ...]) -> Position:
        """Where the value at `path` is said; `BUILT_IN` where nobody says it."""
        return self._said(path)[0]

    def _said(self, path: tuple[str, ...]) -> tuple[Position, Tree | None]:
        """Where the value at `path` is said, and how; BUILT_IN and None where nobody says it."""
        here: Tree = self.layers.tree
        found = BUILT_IN
        for part in path:
            if not isinstance(here, MapTree) or part not in here.items:
                said = self.archive.get(path[-1]) if path[0] in _ARCHIVED | _UPKEEP else None
                usual = self.archive[path[0]][1] if path[0] in _UPKEEP & self.archive.keys() else None
                if isinstance(usual, MapTree):
                    said = usual.items.get(path[-1], said)
                return (_place(*said), said[1]) if said else (BUILT_IN, None)
            key, here = here.items[part]
            found = _place(key, here)
        return found, here


def _is_on(value: Any) -> bool:
    """A switch that says yes, or a reference, which may."""
    return value is True or isinstance(value, str)


def _place(key: Position, value: Tree) -> Position:
    return value.mark if isinstance(value, Scalar) else key


def flat_settings(settings: Fields) -> list[tuple[tuple[str, ...], Any]]:
    """The managed settings as (path, value): ``paused``, ``lanes <GRP> limit``, ``repeatables <name>``."""
    out: list[tuple[tuple[str, ...], Any]] = [
        ((n,), settings[n]) for n in ("paused", "concurrency", "rate") if n in settings
    ]
    for lane, fields in settings.get("lanes", {}).items():
        out += [(("lanes", lane, name), value) for name, value in fields.items()]
    out += [(("repeatables", name), value) for name, value in settings.get("repeatables", {}).items()]
    return out


class Layers:
    """The layered entries of a config. Queues that the same entries match share one result."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._tree = loaded.tree
        queues = self._tree.items.get("queues")
        self._entries: Items = queues[1].items if queues and isinstance(queues[1], MapTree) else {}
        self._globs = sorted((name for name in self._entries if globs.is_glob(name)), key=globs.specificity)
        self._by_name: dict[str, list[str]] = {}
        for selector in self._entries:
            if not globs.is_glob(selector):
                self._by_name.setdefault(globs.literal(selector), []).append(selector)
        self._shared: dict[tuple[str, ...], Effective] = {}
        self._alike: Alike = {}
        self._whole: dict[bytes, Effective] = {}  # by what the layers say: queues of different entries may say the same
        self._worded: dict[tuple[int, ...], Effective] = {}  # by `Layered.words`
        archive = self._tree.items.get("archive")
        self._archive: Items = {
            key: item
            for key, item in (archive[1].items.items() if archive and isinstance(archive[1], MapTree) else ())
            if key in ARCHIVE_FIELDS or key in _UPKEEP
        }

    @property
    def literals(self) -> list[str]:
        """Queues named in the config, in its order."""
        return list(self._by_name)

    @property
    def patterns(self) -> list[str]:
        """The globs, the most specific last."""
        return list(self._globs)

    def mark(self, selector: str) -> Position:
        """Where an entry stands."""
        return self._entries[selector][0]

    def is_optional(self, selector: str) -> bool:
        """Whether a glob may match nothing."""
        return self._loaded.config.queues[selector].optional

    def selectors(self, queue: str) -> tuple[str, ...]:
        """The entries that match, the most specific last; within equals, the later in the file wins."""
        matching = [name for name in self._globs if globs.matches(name, queue)]
        return (*matching, *self._by_name.get(queue, ()))

    def queues(self, live: Iterable[str]) -> list[str]:
        """The queues that the config is about: those named, and those of `live` that a glob takes. Sorted."""
        found = set(self._by_name)
        if self._globs:
            patterns = [globs.compiled(name) for name in self._globs]
            found.update(queue for queue in live if any(p.fullmatch(queue) for p in patterns))
        return sorted(found)

    def takes_any(self, selector: str, queues: Iterable[str]) -> bool:
        """Whether a glob takes one of `queues`."""
        pattern = globs.compiled(selector)
        return any(pattern.fullmatch(name) for name in queues)

    def unmatched(self, queues: Iterable[str]) -> list[str]:
        """The globs, not optional, that take none of `queues`."""
        names = list(queues)
        return [
            selector
            for selector in self._globs
            if not self.is_optional(selector) and not self.takes_any(selector, names)
        ]

    def check(self) -> None:
        """Looks at every named queue, and at every glob by itself. Raises SourceError for the first that makes no
        sense."""
        for queue in self.literals:
            self.effective(queue)
        for selector in self._globs:
            self.of_glob(selector)

    def of_glob(self, selector: str) -> Effective:
        """What holds for a queue that `selector` takes, and nothing more specific. Raises SourceError."""
        matching = tuple(name for name in self._globs if globs.matches(name, globs.literal(selector)))
        known = self._shared.get(matching)
        return known if known is not None else self._build(selector, matching)

    def effective(self, queue: str) -> Effective:
        """What holds for `queue`. Raises SourceError where the layers together make no sense."""
        selectors = self.selectors(queue)
        known = self._shared.get(selectors)
        if known is None:
            known = self._shared[selectors] = self._build(queue, selectors)
        return known if known.queue == queue else replace(known, queue=queue, selectors=selectors)

    def _build(self, queue: str, selectors: tuple[str, ...]) -> Effective:
        defaults = self._tree.items.get("defaults")
        entries = tuple(self._entries[name][1] for name in selectors)
        layers = Layered((defaults[1], *entries) if defaults else entries)
        words = layers.words
        known = self._worded.get(words)
        if known is None:
            key = marshal.dumps(plain(layers.tree), 2)
            known = self._whole.get(key)
            if known is None:
                known = self._whole[key] = self._checked(queue, selectors, layers)
            self._worded[words] = known
        return known if known.layers is layers else replace(known, queue=queue, selectors=selectors, layers=layers)

    def _checked(self, queue: str, selectors: tuple[str, ...], layers: Layered) -> Effective:
        merged = layers.tree
        build = Sections(queue, self._loaded.env, self._alike)
        passes: dict[str, Any] = {}
        for one in PASSES:
            at, said = merged.items.get(one.section, (BUILT_IN, None))
            if one.of_archive:
                said = self._upkeep(one, said, passes)
            if one.many and isinstance(said, MapTree):
                parts = {
                    name: self._task(build, one, f"{one.section}.{name}", *item) for name, item in said.items.items()
                }
                found: Any = {name: fields for name, fields in parts.items() if fields is not None}
            else:
                found = None if said is None or one.many else self._task(build, one, one.section, at, said)
            if found:
                passes[one.section] = found
        settings = build.settings(merged.items["settings"][1] if "settings" in merged.items else None)
        protect = merged.items.get("protect")
        whole = MapTree(BUILT_IN, {"protect": protect} if protect else {}, 1)
        protected = bool(build.checked(QueueSection, "", whole).get("protect"))
        effective = Effective(queue, passes, settings, protected, selectors, layers, self._archive)
        self._check(effective)
        return effective

    def _upkeep(self, one: Pass, said: Tree | None, passes: dict[str, Any]) -> Tree | None:
        """The section of a pass that sees to the archive: what `archive` says of it for all queues, the queue's own
        over it; None where nothing of the queue is archived in an object store."""
        archive = self._loaded.config.archive
        kept = passes.get("streams") or _is_on((passes.get("dead") or {}).get("archive"))
        if archive is None or archive.remote is None or not kept:
            return None
        usual = self._archive[one.section][1] if one.section in self._archive else MapTree(BUILT_IN, {}, 1)
        return overlay(usual, said) if isinstance(said, MapTree) else usual

    def _task(self, build: Sections, one: Pass, path: str, at: Position, tree: Tree) -> Fields | None:
        """The fields of one pass, over what `archive` says for all that is archived."""
        names = ARCHIVE_FIELDS if archived(one.policy) or one.of_archive else ()
        items: Items = {key: item for key, item in self._archive.items() if key in names and key in keys(one.policy)}
        if "archive" in keys(one.policy):
            items["archive"] = (BUILT_IN, Scalar(BUILT_IN, self._loaded.config.archive is not None))
        return build.task(one.policy, path, at, overlay(MapTree(BUILT_IN, items, 1), tree) if items else tree)

    def _check(self, effective: Effective) -> None:
        if str(self._loaded.config.state.url).startswith("postgres"):
            for name, fields in effective.streams.items():
                if fields["trim_after"] == "local":
                    raise SourceError(
                        "",
                        effective.mark(("streams", name, "trim_after")),
                        path=dotted(["queues", effective.queue, "streams", name, "trim_after"]),
                        expected="remote, since the state is PostgreSQL and hosts may be several",
                        got="local",
                    )
