"""From files to a `Playbook`: plays, blocks, includes, handlers. Nothing is run."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from emq_ops.playbook import shapes, source
from emq_ops.playbook.errors import wrong
from emq_ops.playbook.grammar import Grammar, Outer
from emq_ops.playbook.model import Block, Play, Playbook, Task, TaskOrBlock, flat
from emq_ops.playbook.modules import MODULES
from emq_ops.playbook.source import YamlNode
from emq_ops.playbook.words import BLOCK_KEYS, INCLUDE_KEYS, PLAY_KEYS
from emq_ops.policy.words import did_you_mean
from emq_ops.protocol.errors import one_line
from emq_ops.syntax.errors import Position
from emq_ops.syntax.expressions import Compiler

MAX_FILES = 100


def load(path: Path, shown: str, compiler: Compiler) -> Playbook:
    """The playbook in the file `path` with all that it includes. `shown`: how errors name it. Raises PlaybookError."""
    reader = _Reader(path, shown, compiler)
    plays = reader.plays(reader.read(path, shown, None), ())
    if not plays:
        wrong(Position(shown, 1, 1), "the playbook has no plays", "it is a list of plays: name, queues, tasks")
    return Playbook(shown, tuple(plays), reader.digest.hexdigest())


class _Reader:
    def __init__(self, top: Path, shown: str, compiler: Compiler) -> None:
        self.top, self.shown = top.resolve(), shown
        self.grammar = Grammar(compiler, MODULES)
        self.digest = hashlib.sha256()
        self.files = self.order = self.count = 0

    def read(self, path: Path, shown: str, at: Position | None) -> YamlNode:
        self.files += 1
        if self.files > MAX_FILES:
            wrong(at or Position(shown, 1, 1), f"more than {MAX_FILES} files are included", "put them together")
        node, raw = source.read(path, shown)
        self.digest.update(hashlib.sha256(raw).digest())
        return node

    def plays(self, root: YamlNode, chain: tuple[Path, ...]) -> list[Play]:
        found: list[Play] = []
        if root.value is None:
            return found
        for item in shapes.listing(root, "a playbook is a list of plays"):
            keys = shapes.mapping(item, "a play is a mapping: name, queues, tasks")
            if "include" in keys and set(keys) <= {"name", "include"}:
                path, shown = self.inside(keys["include"], chain)
                found += self.plays(self.read(path, shown, item.pos), (*chain, path))
            else:
                found.append(self.play(item, keys, chain))
        return found

    def play(self, item: YamlNode, keys: dict[str, YamlNode], chain: tuple[Path, ...]) -> Play:
        shapes.known(item, PLAY_KEYS, "a play")
        for needed in ("queues", "tasks"):
            if needed not in keys:
                wrong(item.pos, f"the play has no '{needed}'", PLAY_KEYS[needed])
        index = self.count
        self.count += 1
        outer = Outer(tags=shapes.tags(keys.get("tags")))
        tasks = self.steps(keys["tasks"], f"{index}.tasks", outer, chain)
        handlers = self.handlers(keys.get("handlers"), f"{index}.handlers", outer, chain)
        names = {handler.name for handler in handlers}
        for task in (*flat(tasks), *handlers):
            for name in task.notify:
                if name not in names:
                    hint = did_you_mean(name, names) if names else "the play has no handlers"
                    wrong(task.pos, f"the task notifies '{one_line(name)}', which is no handler of the play", hint)
        return Play(
            index=index,
            name=shapes.text(keys.get("name"), "name") or f"play {index + 1}",
            pos=item.pos,
            queues=self.patterns(keys["queues"]),
            tasks=tasks,
            handlers=handlers,
            vars=self.grammar.variables(keys.get("vars")),
            tags=outer.tags,
            serial=shapes.serial(keys.get("serial")),
            max_fail=shapes.percent(keys.get("max_fail_percentage")),
            named=shapes.switch(keys.get("named"), "named"),
        )

    def patterns(self, node: YamlNode) -> YamlNode:
        parts = node.value if isinstance(node.value, list) else [node]
        if not parts:
            wrong(node.pos, "'queues' is empty", "an empty pattern never means every queue")
        for part in parts:
            if not isinstance(part.value, str) or not part.value:
                wrong(part.pos, f"'queues' expects a name or a pattern, got {part.kind()}", "quote it")
            self.grammar.template(part)
        return node

    def handlers(self, node: YamlNode | None, key: str, outer: Outer, chain: tuple[Path, ...]) -> tuple[Task, ...]:
        found: list[Task] = []
        for step in () if node is None or node.value is None else self.steps(node, key, outer, chain):
            if not isinstance(step, Task):
                wrong(step.pos, "a handler is a single task", "put the tasks below each other")
            if any(step.name == other.name for other in found):
                wrong(step.pos, f"two handlers are named '{step.name}'", "rename one")
            found.append(step)
        return tuple(found)

    def steps(self, node: YamlNode, key: str, outer: Outer, chain: tuple[Path, ...]) -> tuple[TaskOrBlock, ...]:
        items = shapes.listing(node, "tasks are a list")
        if not items:
            wrong(node.pos, "there are no tasks", "give at least one")
        return tuple(self.step(item, f"{key}.{i}", outer, chain) for i, item in enumerate(items))

    def step(self, item: YamlNode, key: str, outer: Outer, chain: tuple[Path, ...]) -> TaskOrBlock:
        keys = shapes.mapping(item, "a task is a mapping: name and one module")
        if "block" in keys:
            return self.block(item, keys, key, outer, chain)
        if "include" in keys:
            return self.include(item, keys, key, outer, chain)
        self.order += 1
        return self.grammar.task(item, key, self.order, outer)

    def block(
        self, item: YamlNode, keys: dict[str, YamlNode], key: str, outer: Outer, chain: tuple[Path, ...]
    ) -> Block:
        shapes.known(item, BLOCK_KEYS, "a block")
        inner = self.grammar.inner(item, outer)
        parts = {
            part: self.steps(keys[part], f"{key}.{part}", inner, chain)
            for part in ("block", "rescue", "always")
            if part in keys
        }
        name = shapes.text(keys.get("name"), "name") or "block"
        return Block(key, name, item.pos, parts["block"], parts.get("rescue", ()), parts.get("always", ()))

    def include(
        self, item: YamlNode, keys: dict[str, YamlNode], key: str, outer: Outer, chain: tuple[Path, ...]
    ) -> Block:
        shapes.known(item, INCLUDE_KEYS, "an include")
        path, shown = self.inside(keys["include"], chain)
        root = self.read(path, shown, keys["include"].pos)
        if root.value is None:
            wrong(keys["include"].pos, f"'{one_line(shown)}' is empty", "an included file is a list of tasks")
        body = self.steps(root, key, self.grammar.inner(item, outer), (*chain, path))
        return Block(key, shapes.text(keys.get("name"), "name") or shown, item.pos, body)

    def inside(self, node: YamlNode, chain: tuple[Path, ...]) -> tuple[Path, str]:
        """The file that an include names, and how to show it: below the playbook's folder, symbolic links followed,
        and not one that is being read."""
        if isinstance(node.value, dict) and set(node.value) == {"file"}:
            node = node.value["file"]
        name = node.value
        if not isinstance(name, str) or not name or "\x00" in name:
            wrong(node.pos, f"'include' expects a file, got {node.kind()}", "name a file in the playbook's folder")
        if "{{" in name or "{%" in name:
            wrong(node.pos, "'include' takes no template", "name the file, and choose with 'when'")
        root = self.top.parent
        shown = one_line(name if len(name) < 80 else f"{name[:80]}...")
        try:
            path = ((chain[-1] if chain else self.top).parent / name).resolve()
            there = path.is_file()
        except (OSError, RuntimeError, ValueError):  # too long a name, symbolic links in a circle
            wrong(node.pos, f"'{shown}' can't be a file", "name a file in the playbook's folder")
        if not path.is_relative_to(root):
            wrong(node.pos, f"'{shown}' is outside the playbook's folder", "only files below it are included")
        if not there:
            wrong(node.pos, f"there is no file '{shown}'", "it is looked for beside the file that includes it")
        if path in chain or path == self.top:
            wrong(node.pos, f"'{one_line(name)}' includes itself", "take one of the includes out")
        return path, os.path.join(os.path.dirname(self.shown), os.path.relpath(path, root))
