"""The config of a revision with what stands on the server now: to plan it changes nothing. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from emq_ops.config.effective import Layers
from emq_ops.deploy import settings
from emq_ops.deploy.document import Document
from emq_ops.passes.registry import PASSES
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError

Env = Mapping[str, str]
Json = dict[str, Any]


def over_revision(document: Document, entries: Mapping[str, Json], env: Env, left_out: list[str]) -> Json:
    """The config that `document` was made of, with the settings of `entries` (queue -> what is live) in the place of
    those that were applied. A reference that gives what is live stays. `left_out` takes a line for what no config can
    say. Raises SourceError for a reference that does not resolve."""
    config: Json = copy.deepcopy(document.data["config"])
    queues: Json = config.setdefault("queues", {})
    for selector in list(queues):
        if not globs.is_glob(selector) and globs.literal(selector) not in document.queues:
            del queues[selector]  # it was taken out by `destroy`
    layers = Document({**document.data, "config": config}).layers(env)
    for name, live in entries.items():
        _take_over(_Entry(name, config, layers), live, managed=name in document.queues, left_out=left_out, env=env)
    return config


class _Entry:
    """One queue in a config: its own entry, and what the layers below say."""

    def __init__(self, name: str, config: Json, layers: Layers) -> None:
        self.name, self.layers = name, layers
        self.queues: Json = config["queues"]
        own = [selector for selector in self.queues if _names(selector, name)]
        self.key = own[-1] if own else globs.escaped(name)
        patterns = [selector for selector in layers.selectors(name) if globs.is_glob(selector)]
        self.taken = bool(own or patterns)
        self._below = [config.get("defaults") or {}, *(self.queues[selector] or {} for selector in patterns)]

    @property
    def own(self) -> Json:
        """The queue's own entry, made where there is none."""
        found: Json = self.queues.setdefault(self.key, {})
        return found

    def put(self, path: str, value: Any) -> None:
        """Says a setting."""
        here, last = _place(self.own.setdefault("settings", {}), path)
        here[last] = value

    def unset(self, path: str) -> bool:
        """Says that a setting is not set; returns whether a config can say so."""
        if settings.unset(path) is False:
            self.put(path, False)
            return True
        here, last = _place(self.own.setdefault("settings", {}), path)
        here.pop(last, None)
        if any(path in settings.flat(layer.get("settings")) for layer in self._below):
            if path.startswith("repeatables/"):
                return False
            here[last] = None
        return True


def _names(selector: str, queue: str) -> bool:
    return not globs.is_glob(selector) and globs.literal(selector) == queue


def _place(here: Json, path: str) -> tuple[Json, str]:
    """The mapping that holds the setting at `path`, and its key there."""
    head, _, rest = path.partition("/")
    if head == "lanes":
        lane, _, head = rest.partition("/")
        here = here.setdefault("lanes", {}).setdefault(lane, {})
    elif head == "repeatables":
        here, head = here.setdefault("repeatables", {}), rest
    return here, head


def _take_over(entry: _Entry, live: Json, *, managed: bool, left_out: list[str], env: Env) -> None:
    wanted = settings.flat(entry.layers.effective(entry.name).settings)
    found = settings.flat(live.get("settings"))
    if not entry.taken:
        entry.queues[entry.key] = {}
        _switch_off(entry)
    for path, value in found.items():
        if path not in wanted or not _gives(path, wanted[path], value, env):
            entry.put(path, value)
    for path in wanted.keys() - found.keys():
        if settings.unset(path) is False and _gives(path, wanted[path], False, env):
            continue
        if (managed or not entry.taken) and not entry.unset(path):
            left_out.append(f"{entry.name}: {path} is not there, but a glob wants it: it stays in the file")


def _switch_off(entry: _Entry) -> None:
    """A queue that nobody managed is not taken in by what the defaults switch on."""
    effective = entry.layers.effective(entry.name)
    for one in PASSES:
        said = effective.passes.get(one.section)
        if said:
            entry.own[one.section] = {name: {"enabled": False} for name in said} if one.many else {"enabled": False}
    if effective.protect:
        entry.own["protect"] = False


def _gives(path: str, wanted: Any, live: Any, env: Env) -> bool:
    try:
        return bool(settings.resolved(path, wanted, env) == settings.resolved(path, live, env))
    except BadInputError:
        return True  # a plan says what is wrong with it


def sections(document: Document, config: Json, places: Json) -> Json:
    """`config` with the state where it is (`places`): server and archive stay where the revision has them, their
    relative paths made absolute."""
    state = {**places.get("state", {}), **{k: v for k, v in (config.get("state") or {}).items() if k != "url"}}
    found: Json = {name: config[name] for name in ("server", "state", "archive") if name in config}
    found = {name: _anchored(section, document.globals.get(name)) for name, section in found.items()}
    found["state"] = state
    return {**found, **{name: section for name, section in config.items() if name not in found}}


def _anchored(said: Any, whole: Any) -> Any:
    if isinstance(said, dict) and isinstance(whole, dict):
        return {name: _anchored(value, whole.get(name)) for name, value in said.items()}
    return whole if isinstance(said, str) and isinstance(whole, str) else said
