"""A command line's run of a playbook, made ready: everything that can be wrong is found here, with nothing done."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from emq_ops.playbook import events, source
from emq_ops.playbook.asks import Asks
from emq_ops.playbook.context import Ops
from emq_ops.playbook.errors import PlaybookError, wrong
from emq_ops.playbook.grammar import Grammar
from emq_ops.playbook.lookup import ENV_PREFIX, make_lookup
from emq_ops.playbook.model import Playbook, Vars
from emq_ops.playbook.modules import MODULES
from emq_ops.playbook.parse import load
from emq_ops.playbook.preflight import Preflight
from emq_ops.playbook.queues import Finder
from emq_ops.playbook.retry import again
from emq_ops.playbook.runner import Runner
from emq_ops.playbook.scope import Renderer, Scope
from emq_ops.playbook.secrets import Secrets
from emq_ops.playbook.select import TaskSelection, select
from emq_ops.playbook.source import YamlNode, node_of
from emq_ops.playbook.store import records
from emq_ops.policy.words import did_you_mean
from emq_ops.protocol.errors import one_line
from emq_ops.syntax.core import scalar
from emq_ops.syntax.errors import Position, kind_of
from emq_ops.syntax.expressions import Compiler

_PACKAGE = "emq_ops_playbooks"


@dataclass
class PlayOptions:
    """What the command line says of a run. `extra`: the arguments of ``-e``; `env`: names that ``lookup('env', ...)``
    may read, beside those that begin with ENV_PREFIX."""

    check: bool = False
    tags: list[str] = field(default_factory=list)
    skip_tags: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    start_at: str | None = None
    env: list[str] = field(default_factory=list)


def shipped() -> dict[str, Path]:
    """The playbooks that ship with the tool, by name without ``.yaml``."""
    folder = resources.files(_PACKAGE)
    return {entry.name[:-5]: Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".yaml")}


def locate(name: str) -> tuple[Path, str]:
    """The file that `name` means, and how to show it: a path, else a playbook that ships. Raises PlaybookError."""
    path = Path(name)
    if os.path.isfile(path):  # no file, too, where the name is too long for one
        return path, name
    known = shipped()
    short = name.removeprefix("playbooks/").removesuffix(".yaml")
    if short in known:
        return known[short], f"{short}.yaml"
    wrong(name if len(name) < 200 else f"{name[:200]}...", "there is no such playbook", did_you_mean(short, known))


def read(name: str) -> tuple[Playbook, Path, Compiler]:
    """The playbook called `name`, parsed. Raises PlaybookError."""
    compiler = Compiler()
    path, shown = locate(name)
    return load(path, shown, compiler), path, compiler


def prepare(
    ops: Ops,
    name: str,
    options: PlayOptions,
    *,
    environment: Mapping[str, str] | None = None,
    emit: events.Emit = events.nowhere,
    asks: Asks | None = None,
    stopping: threading.Event | None = None,
) -> Runner:
    """A new run of the playbook `name`. Nothing is changed but the ledger, which gets the run.

    Raises PlaybookError for whatever is wrong with the playbook or the options; UnreachableError, DatabaseError.
    """
    playbook, path, compiler = read(name)
    start = _Start(ops, playbook, path, compiler, options, extra_vars(options.extra, compiler), environment)
    return start.runner(None, emit, asks, stopping)


def resume(
    ops: Ops,
    run: str,
    name: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    emit: events.Emit = events.nowhere,
    asks: Asks | None = None,
    stopping: threading.Event | None = None,
) -> Runner:
    """The run `run`, interrupted or failed, taken over. `name`: its playbook, if the caller names it too. Raises as
    `prepare`, and BadInputError for a run that is not there, done, alive, or whose playbook was changed."""
    asked = records.look(ops.ledger, run)
    playbook, path, compiler = read(asked.playbook)
    if playbook.sha256 != asked.sha256:
        wrong(asked.playbook, f"was changed since run {run} began", "put it back, or start anew with --start-at-task")
    if name is not None and locate(name)[0].resolve() != path.resolve():
        wrong(name, f"run {run} is of {asked.playbook}", "leave the playbook out")
    options = PlayOptions(**{**asked.options, "extra": []})
    extra = {k: node_of(v, Position("-e", 1, 1)) for k, v in asked.options["extra"].items()}
    return _Start(ops, playbook, path, compiler, options, extra, environment).runner(run, emit, asks, stopping)


@dataclass(frozen=True)
class _Start:
    """A playbook and what its command line says, before a run."""

    ops: Ops
    playbook: Playbook
    path: Path
    compiler: Compiler
    options: PlayOptions
    extra: Vars
    environment: Mapping[str, str] | None

    def runner(self, run: str | None, emit: events.Emit, asks: Asks | None, stopping: threading.Event | None) -> Runner:
        """What runs it. `run`: the run that is taken over, None: a new one."""
        env = os.environ if self.environment is None else self.environment
        allowed: dict[str, str | None] = {k: v for k, v in env.items() if k.startswith(ENV_PREFIX)}
        allowed |= {name: env.get(name) for name in self.options.env}
        secrets = Secrets(allowed)
        try:
            renderer = Renderer(self.compiler, make_lookup(allowed))
            selection = select(self.playbook, self.options.tags, self.options.skip_tags, self.options.start_at)
            record, queues = self._record(run, renderer, selection, secrets)
        except PlaybookError as fault:
            raise PlaybookError(secrets.shown(fault.what), where=fault.where, fix=fault.fix) from None
        return Runner(
            self.ops,
            self.playbook,
            renderer,
            self.extra,
            selection,
            queues,
            record,
            self.options.check,
            secrets,
            emit,
            asks or Asks(),
            stopping or threading.Event(),
        )

    def _record(
        self, run: str | None, renderer: Renderer, selection: TaskSelection, secrets: Secrets
    ) -> tuple[records.PlaybookRun, dict[int, list[str]]]:
        """The run in the ledger, begun or taken over once nothing more can be found wrong, and each play's queues."""
        if run is None:
            finder = Finder(self.ops.server, self.ops.configured, self.ops.named)
            queues = find_queues(self.playbook, renderer, self.extra, finder, self.options.queues)
            self._preflight(renderer, selection, queues)
            kept = {**asdict(self.options), "extra": {k: node.data() for k, node in self.extra.items()}}
            names = {str(index): found for index, found in queues.items()}
            return records.begin(self.ops.ledger, str(self.path.resolve()), self.playbook.sha256, kept, names), queues
        record = records.claim(self.ops.ledger, run, lambda failed: _again(self.playbook, selection, failed))
        record.steps = secrets.resolved(record.steps)
        self._preflight(renderer, selection, _queues(record))
        return record, _queues(record)

    def _preflight(self, renderer: Renderer, selection: TaskSelection, queues: Mapping[int, Sequence[str]]) -> None:
        magic = {"check_mode": self.options.check}
        Preflight(self.playbook, renderer, self.extra, selection.takes, queues, magic).check()


def _queues(record: records.PlaybookRun) -> dict[int, list[str]]:
    return {int(index): names for index, names in record.queues.items()}


def _again(
    playbook: Playbook, selection: TaskSelection, failed: records.PlaybookRun
) -> tuple[set[records.StepKey], set[records.StepKey]]:
    found = again(playbook, selection.takes, _queues(failed), failed.steps)
    return found.dropped, found.reset


def find_queues(
    playbook: Playbook, renderer: Renderer, extra: Vars, finder: Finder, limits: Sequence[str]
) -> dict[int, list[str]]:
    """The queues of each play, by its index; `limits`: the patterns of ``--queues``. Raises PlaybookError."""
    found: dict[int, list[str]] = {}
    for play in playbook.plays:
        if play.named and not limits:
            wrong(play.pos, f"'{one_line(play.name)}' runs on no queue that is not named", "--queues QUEUE")
        scope = Scope(extra, (), (play.vars,))
        names: dict[str, None] = {}
        for node in play.queues.value if isinstance(play.queues.value, list) else [play.queues]:
            value = renderer.value(node, scope)
            for selector in value if isinstance(value, list) else [value]:
                if not isinstance(selector, str):
                    wrong(node.pos, f"'queues' expects names or patterns, got {kind_of(selector)}")
                names |= dict.fromkeys(finder.find(selector, node.pos))
            if value == []:
                wrong(node.pos, "'queues' is empty", "an empty list never means every queue")
        found[play.index] = sorted(names)
    if limits:
        taken = {name for pattern in limits for name in finder.find(pattern, "--queues")}
        found = {index: [name for name in names if name in taken] for index, names in found.items()}
        if not any(found.values()):
            wrong("--queues", "none of these queues is in any play", "see --list-tasks for the plays' queues")
    return found


def extra_vars(arguments: Sequence[str], compiler: Compiler) -> Vars:
    """The variables of ``-e``: ``name=value``, ``@file.yaml`` or a mapping in braces; later ones win."""
    out: Vars = {}
    grammar = Grammar(compiler, MODULES)
    for text in arguments:
        if text.startswith("@"):
            node, _ = source.read(Path(text[1:]), text[1:])
        elif text.lstrip().startswith("{"):
            node = source.parse(text, "-e")
        else:
            name, equals, value = text.partition("=")
            if not equals or not name:
                wrong(
                    "-e", f"'{one_line(text)}' sets no variable", "write name=value, @file.yaml or '{\"name\": value}'"
                )
            pos = Position("-e", 1, len(name) + 2)
            written = value[:1] in ("[", "{") and not value.startswith(("{{", "{%"))
            parsed = source.parse(value, "-e") if written else YamlNode(_typed(value), pos)
            node = YamlNode({name: parsed}, pos, {name: Position("-e", 1, 1)})
        out |= grammar.variables(node)
    return out


def _typed(value: str) -> Any:
    """``5`` a number, ``true`` a truth, all else text, also nothing at all."""
    return scalar(value) if value else ""
