"""What a config wants, as plain JSON: the content of a revision. References stand in it as written, never their values.

    {"format": 1, "base": folder of relative paths, "globals": {archive, server, daemon, http, alerts, ...},
     "queues": {name: {stalled, dead, streams, settings, protect}}, "globs": the same of queues that come later,
     "config": the layered YAML itself, "order": its entries under queues, where they are not in order of the alphabet}

A revision is complete: a daemon runs it though the file is gone. `config` lets it follow globs: see `effective`.
Revisions of earlier versions have no `globs`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from emq_ops.config.effective import Effective, Layers
from emq_ops.config.explain import explain
from emq_ops.config.loader import Loaded
from emq_ops.config.models import (
    AlertRuleSection,
    AlertSection,
    ArchiveSection,
    Config,
    DaemonSection,
    HeartbeatSection,
    HttpSection,
    Section,
    ServerSection,
    StateSection,
    WindowSection,
)
from emq_ops.config.section_json import section_json
from emq_ops.config.wiring import Wiring
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.registry import PASSES
from emq_ops.policy.options import Nested, keys, show, written
from emq_ops.policy.reading import Reader
from emq_ops.protocol.errors import BadInputError
from emq_ops.syntax.errors import Position
from emq_ops.syntax.tree import ListTree, MapTree, Scalar, Tree, plain

FORMAT = 1
_MANY = frozenset(one.section for one in PASSES if one.many)
_SHARED = frozenset(one.section for one in PASSES if not one.many) | {"settings"}
_ENTRIES = ("queues", "globs")
GLOBALS = ("server", "state", "archive", "maintenance", "daemon", "http", "alerts", "alert_rules", "heartbeat")

Json = dict[str, Any]


@dataclass(frozen=True)
class Document:
    """A wanted or applied state of affairs. `data` is its JSON."""

    data: Json = field(repr=False)

    @classmethod
    def of(cls, loaded: Loaded, layers: Layers, queues: Iterable[str]) -> Document:
        """What `loaded` wants for `queues`. Raises SourceError where a queue's layers make no sense together."""
        marks: dict[str, Position] = {}
        config = loaded.config
        found: Json = {
            "server": section_json(loaded, ("server",), config.server, marks),
            "state": _retention(section_json(loaded, ("state",), config.state, marks)),
            "archive": None if config.archive is None else section_json(loaded, ("archive",), config.archive, marks),
            "maintenance": [
                section_json(loaded, ("maintenance", i), window, marks) for i, window in enumerate(config.maintenance)
            ],
            "daemon": _unless_default(config.daemon, section_json(loaded, ("daemon",), config.daemon, marks)),
            "http": _unless_default(config.http, section_json(loaded, ("http",), config.http, marks)),
            "alerts": [section_json(loaded, ("alerts", i), alert, marks) for i, alert in enumerate(config.alerts)],
        }
        if config.alert_rules:
            rules = enumerate(config.alert_rules)
            found["alert_rules"] = [section_json(loaded, ("alert_rules", i), rule, marks) for i, rule in rules]
        if config.heartbeat is not None:
            found["heartbeat"] = section_json(loaded, ("heartbeat",), config.heartbeat, marks)
        tree = plain(loaded.tree)
        entries = list(tree.get("queues") or {})
        return cls(
            {
                "format": FORMAT,
                "base": str(loaded.folder.absolute()),
                "globals": found,
                "queues": {queue: _queue(layers.effective(queue)) for queue in queues},
                "globs": {selector: _queue(layers.of_glob(selector)) for selector in layers.patterns},
                "config": tree,
                **({"order": entries} if entries != sorted(entries) else {}),
            }
        )

    @classmethod
    def empty(cls, base: str = "") -> Document:
        """Nothing is wanted: what `destroy` leaves."""
        return cls({"format": FORMAT, "base": base, "globals": {}, "queues": {}, "globs": {}, "config": {}})

    @classmethod
    def from_text(cls, text: str) -> Document:
        """Back from `text`; raises BadInputError for a format that this version does not know."""
        return cls.from_compact(json.loads(text))

    @classmethod
    def from_compact(cls, data: Json) -> Document:
        """Back from `compact`."""
        if data.get("format") != FORMAT:
            raise BadInputError(
                f"a revision of format {data.get('format')}", fix="use the version of emq-ops that wrote it"
            )
        get = data["shared"].__getitem__
        whole = {name: _each(data[name], get) for name in _ENTRIES if name in data}
        config = data["config"]
        if order := data.get("order"):  # of two entries that are alike specific, the later one wins
            config = {**config, "queues": {name: config["queues"][name] for name in order}}
        return cls({**{k: v for k, v in data.items() if k != "shared"}, **whole, "config": config})

    @cached_property
    def compact(self) -> Json:
        """As it is kept: sections that are alike stand once, under `shared`, named by their hash."""
        shared: Json = {}
        known: dict[int, str] = {}

        def put(fields: Json) -> str:
            if id(fields) not in known:
                text = json.dumps(fields, sort_keys=True)
                known[id(fields)] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
                shared[known[id(fields)]] = fields
            return known[id(fields)]

        packed = {name: _each(self.data[name], put) for name in _ENTRIES if name in self.data}
        return {**self.data, **packed, "shared": shared}

    @cached_property
    def text(self) -> str:
        """The canonical JSON of `compact`."""
        return json.dumps(self.compact, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def sha256(self) -> str:
        """The hash of what is wanted, whatever the files look like."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def queues(self) -> dict[str, Json]:
        """Queue -> its policies and settings."""
        found: dict[str, Json] = self.data["queues"]
        return found

    def without_digests(self) -> Document:
        """The same, without what was noted of references."""
        return Document({name: value for name, value in self.data.items() if name != "resolved"})

    @property
    def noted(self) -> bool:
        """Whether the apply of this revision left a note beside the settings of each queue."""
        return bool(self.data.get("noted"))

    def with_notes(self) -> Document:
        """The same, as an apply that leaves notes puts it in force."""
        return Document({**self.data, "noted": True})

    @property
    def globs(self) -> dict[str, Json] | None:
        """Glob -> policies and settings of the queues that it will take; None where this was not noted."""
        return self.data.get("globs")

    @property
    def moved(self) -> list[tuple[str, str]]:
        """The renames that the config tells: old name or glob, new one."""
        return [(one["from"], one["to"]) for one in self.data.get("config", {}).get("moved") or []]

    @property
    def globals(self) -> Json:
        """What is not of one queue."""
        found: Json = self.data["globals"]
        return found

    @cached_property
    def completed(self) -> Document:
        """The same with a value in every key that this version knows: one that is new, at its default, is no change."""
        known: dict[tuple[type[Any], int], Json] = {}

        def filled(kind: type[Any], section: Json) -> Json:
            place = (kind, id(section))
            if place not in known:  # queues that say the same share their sections
                known[place] = _filled(kind, section)
            return known[place]

        fill = [(one, partial(filled, one.policy)) for one in PASSES]
        whole = {
            name: {queue: _passes_filled(entry, fill) for queue, entry in self.data[name].items()}
            for name in _ENTRIES
            if name in self.data
        }
        found = dict(self.globals)
        for name, kind in _SECTIONS.items():
            section = found.get(name)
            if isinstance(section, list):
                found[name] = [_filled(kind, each) for each in section]
            elif section:
                found[name] = _filled(kind, section)
        return Document({**self.data, **whole, "globals": found})

    def wiring(self, env: Mapping[str, str]) -> Wiring:
        """Where server and archive are, as this revision has it (the state is where it was read from)."""
        found = self.globals
        return Wiring(
            found.get("server") or {"url": "embedded"}, {}, found.get("archive"), Path(self.data["base"]), env
        )

    def layers(self, env: Mapping[str, str]) -> Layers:
        """The layered entries, to tell what holds for a queue that a glob takes and that was not there at apply."""
        tree = _tree(self.data["config"])
        assert isinstance(tree, MapTree)
        # A variable that is not set here is the fault of the queues that use it, not of all.
        reader = Reader(env, defer=True)
        config = reader.section(Config, self.data["config"])
        if config is None:
            raise explain(reader.faults, tree)
        return Layers(Loaded(config, tree, (), env))


def _each(entries: Json, do: Callable[[Any], Any]) -> Json:
    """`entries` with every section replaced by what `do` makes of it."""
    return {
        name: {
            key: {stream: do(fields) for stream, fields in value.items()}
            if key in _MANY
            else do(value)
            if key in _SHARED
            else value
            for key, value in entry.items()
        }
        for name, entry in entries.items()
    }


_SECTIONS: dict[str, type[Any]] = {
    "server": ServerSection,
    "archive": ArchiveSection,
    "maintenance": WindowSection,
    "daemon": DaemonSection,
    "http": HttpSection,
    "alerts": AlertSection,
    "alert_rules": AlertRuleSection,
    "heartbeat": HeartbeatSection,
}


def _filled(kind: type[Any], section: Json) -> Json:
    out = dict(section)
    for name, key in keys(kind).items():
        if name not in out and name != "note" and key.default is not MISSING:
            out[name] = show(key.shape, key.default)
        elif isinstance(key.shape, Nested) and isinstance(out.get(name), dict):
            out[name] = _filled(key.shape.of, out[name])
    return out


def _passes_filled(entry: Json, fill: Iterable[tuple[Pass, Callable[[Json], Json]]]) -> Json:
    out = dict(entry)
    for one, filled in fill:
        if section := entry.get(one.section):
            out[one.section] = {n: filled(each) for n, each in section.items()} if one.many else filled(section)
    return out


def _retention(section: Json) -> Json | None:
    """What a daemon follows of ``state:``; where the state lies is not in it."""
    kept = {"retain": section["retain"]}
    return None if kept["retain"] == written(StateSection())["retain"] else kept


def _unless_default(model: Section, section: Json) -> Json | None:
    return None if model == type(model)() else section


def _queue(effective: Effective) -> Json:
    out: Json = dict(effective.passes)
    if effective.settings:
        out["settings"] = effective.settings
    if effective.protect:
        out["protect"] = True
    return out


_REVISION = Position("revision", 0, 0)


def _tree(value: Any) -> Tree:
    if isinstance(value, dict):
        items = {key: (_REVISION, _tree(below)) for key, below in value.items()}
        return MapTree(_REVISION, items, 1)
    if isinstance(value, list):
        return ListTree(_REVISION, tuple(_tree(below) for below in value), 1)
    return Scalar(_REVISION, value)
