"""Contexts: names for servers and configs, in a file of the user's own, without secrets.

current: prod
contexts:
  prod: {config: [/srv/emq/config.yaml], production: true}
  staging: {url: "redis://ops:${STAGING_PW}@10.0.0.5", state: "postgresql://..."}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from emq_ops.config.explain import explain
from emq_ops.policy.kinds import SWITCH, TEXT, URL, named
from emq_ops.policy.options import Listed, Named, Nested, option, written
from emq_ops.policy.reading import Reader
from emq_ops.policy.secrets import hide
from emq_ops.policy.words import did_you_mean
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.files import make_private, opened, tighten, user_file, write_privately
from emq_ops.syntax.tree import MAX_BYTES, MapTree, parse, plain

NONE = "-"
"""Names no context, where one is in use."""


def context_name(text: str) -> str:
    """`text` as the name of a context. Raises ValueError."""
    if not text or text[0] in "-." or not all(sign.isalnum() or sign in "-_." for sign in text):
        raise ValueError("letters, digits, - _ and .")
    return text


@dataclass(frozen=True, kw_only=True)
class NamedPlace:
    """Where commands go under a name. URLs hold references, never secrets; paths are absolute."""

    config: tuple[str, ...] = option(Listed(TEXT, single=True), (), "config files, later ones over earlier ones")
    url: str | None = option(URL, None, "the server, instead of the config's")
    state: str | None = option(URL, None, "the state database")
    local: str | None = option(URL, None, "the archive's local database")
    remote: str | None = option(URL, None, "the archive's object store")
    production: bool = option(SWITCH, False, "what removes asks for the context's name")


@dataclass(frozen=True, kw_only=True)
class Contexts:
    """The file's content."""

    current: str | None = option(TEXT, None, "the one in use")
    contexts: dict[str, NamedPlace] = option(
        Named(named("the name of a context", context_name), Nested(NamedPlace)), {}
    )

    def get(self, name: str, where: str) -> NamedPlace:
        """The context of that name. Raises BadInputError for one that is not there; `where` says who named it."""
        found = self.contexts.get(name)
        if found is None:
            fix = did_you_mean(name, self.contexts) if self.contexts else "`emq-ops context add NAME` makes one"
            raise BadInputError(f"no context '{name}'", where=where, fix=fix)
        return found

    def named_by(self, files: list[Path], url: str | None) -> tuple[str, NamedPlace] | None:
        """The context, with its name, that means these config files, or this server; None where none does. One that is
        production comes first."""
        real = [os.path.realpath(path) for path in files]
        found = [
            (name, one)
            for name, one in self.contexts.items()
            if (real and one.config and [os.path.realpath(path) for path in one.config] == real)
            or (url is not None and one.url is not None and _place(one.url) == _place(url))
        ]
        return max(found, key=lambda each: each[1].production, default=None)


def read_contexts(env: Mapping[str, str]) -> Contexts:
    """The user's contexts; none where there is no file. Raises SourceError, BadInputError."""
    path = Path(user_file(env, "contexts.yaml"))
    try:
        with opened(path) as file:
            text = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as fault:
        raise BadInputError(f"can't read the contexts: {fault.strerror}", where=str(path), fix="check it") from None
    tighten(path)
    tree = parse(text, str(path))
    reader = Reader({}, defer=True)
    found = reader.section(Contexts, plain(tree))
    if found is None:
        raise explain(reader.faults, tree if isinstance(tree, MapTree) else MapTree(tree.mark, {}, 1))
    return found


def write_contexts(env: Mapping[str, str], contexts: Contexts) -> Path:
    """Keeps the contexts, for their user alone; returns where. Raises BadInputError."""
    path = Path(user_file(env, "contexts.yaml"))
    lines = ["# Contexts of emq-ops: `emq-ops context add|use|ls|rm`. No secrets: write ${NAME}.\n"]
    if contexts.current is not None:
        lines.append(f"current: {json.dumps(contexts.current)}\n")
    lines.append("contexts:\n" if contexts.contexts else "contexts: {}\n")
    usual = written(NamedPlace())
    for name, one in sorted(contexts.contexts.items()):
        told = {key: value for key, value in written(one).items() if value != usual[key]}
        lines.append(f"  {json.dumps(name)}: {json.dumps(told, ensure_ascii=False)}\n")
    try:
        make_private(path.parent)
        write_privately(path, "".join(lines).encode())
    except OSError as fault:
        raise BadInputError(f"can't keep the contexts: {fault.strerror}", where=str(path), fix="check it") from None
    return path


def with_context(contexts: Contexts, name: str, one: NamedPlace) -> Contexts:
    """`contexts` with one more, or another under a name."""
    return replace(contexts, contexts={**contexts.contexts, name: one})


def without_context(contexts: Contexts, name: str) -> Contexts:
    """`contexts` without one."""
    left = {key: one for key, one in contexts.contexts.items() if key != name}
    return replace(contexts, contexts=left, current=None if contexts.current == name else contexts.current)


def _place(url: str) -> str:
    """A URL without who asks, and how."""
    scheme, mark, rest = hide(url).partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2].partition('?')[0].rstrip('/')}"
