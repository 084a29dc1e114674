"""The parts of a task: module, options, conditions, templates, variables. Every template is parsed, nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jinja2 import TemplateSyntaxError

from emq_ops.playbook import shapes
from emq_ops.playbook.errors import wrong
from emq_ops.playbook.model import Task, Vars
from emq_ops.playbook.registry import Module
from emq_ops.playbook.source import YamlNode
from emq_ops.playbook.words import BLOCK_KEYS, ELSEWHERE, LOOP_CONTROL_KEYS, PLAY_KEYS, TASK_KEYS
from emq_ops.policy.words import nearest
from emq_ops.protocol.errors import one_line
from emq_ops.syntax.errors import Position
from emq_ops.syntax.expressions import Compiled, Compiler, Condition, syntax_fault


@dataclass(frozen=True)
class Outer:
    """What enclosing plays, blocks and includes give to a task."""

    when: tuple[Condition, ...] = ()
    tags: frozenset[str] = frozenset()
    layers: tuple[Vars, ...] = ()


class Grammar:
    """Reads tasks. Knows the modules; stateless otherwise."""

    def __init__(self, compiler: Compiler, modules: Mapping[str, Module]) -> None:
        self._compiler = compiler
        self._modules = modules

    def task(self, item: YamlNode, key: str, order: int, outer: Outer) -> Task:
        """One task from its mapping. Raises PlaybookError."""
        keys: dict[str, YamlNode] = item.value
        module = self._module(item)
        args = self._arguments(module, keys[module.name], item.keys[module.name])
        inner = self.inner(item, outer)
        until = self.conditions(keys.get("until"), "until")
        register = shapes.variable(keys["register"]) if "register" in keys else None
        if len(until) > 1:
            wrong(keys["until"].pos, "'until' expects one expression", "join them with 'and'")
        if until and register is None:
            wrong(keys["until"].pos, "'until' without 'register'", "register the result that 'until' looks at")
        for word in ("retries", "delay"):
            if word in keys and not until:
                wrong(item.keys[word], f"'{word}' without 'until'", "add 'until', or take it out")
        loop, loop_var, index_var = self._loop(item)
        return Task(
            key=key,
            order=order,
            name=shapes.text(keys.get("name"), "name") or module.name,
            pos=item.pos,
            module=module,
            args=args,
            when=inner.when,
            loop=loop,
            loop_var=loop_var,
            index_var=index_var,
            register=register,
            until=until[0] if until else None,
            retries=self._tries(keys.get("retries"), shapes.retries),
            delay=self._tries(keys.get("delay"), lambda value, pos: shapes.duration(value, pos, "delay")),
            tags=inner.tags,
            notify=tuple(shapes.names(keys.get("notify"), "notify")),
            layers=inner.layers,
            conditions={
                option.name: self.conditions(args.value[option.name], option.name)
                for option in module.options
                if not option.template and option.name in args.value
            },
        )

    def inner(self, item: YamlNode, outer: Outer) -> Outer:
        """`outer` with what `item` (a task, block or include) adds."""
        keys: dict[str, YamlNode] = item.value
        variables = self.variables(keys.get("vars"))
        return Outer(
            (*outer.when, *self.conditions(keys.get("when"), "when")),
            outer.tags | shapes.tags(keys.get("tags")),
            (*outer.layers, variables) if variables else outer.layers,
        )

    def variables(self, node: YamlNode | None) -> Vars:
        """A ``vars`` mapping."""
        if node is None or node.value is None:
            return {}
        keys = shapes.mapping(node, "'vars' is a mapping of names and values")
        for name, child in keys.items():
            shapes.variable(YamlNode(name, node.keys[name]))
            self.template(child)
        return keys

    def conditions(self, node: YamlNode | None, word: str) -> tuple[Condition, ...]:
        """One or several expressions that must all be true."""
        if node is None:
            return ()
        parts = node.value if isinstance(node.value, list) else [node]
        if not parts:
            wrong(node.pos, f"'{word}' is empty", "give an expression")
        return tuple(self._condition(part, word) for part in parts)

    def _condition(self, node: YamlNode, word: str) -> Condition:
        if isinstance(node.value, bool):
            return Condition(node.pos, str(node.value).lower(), None, node.value)
        if not isinstance(node.value, str):
            wrong(
                node.pos, f"'{word}' expects an expression that is true or false, got {node.kind()}", "such as: a > 0"
            )
        if node.value.lstrip().startswith(("{{", "{%")):
            wrong(node.pos, f"'{word}' is an expression already", "write it without '{{ }}'")
        return Condition(node.pos, node.value.strip(), self.compiled(self._compiler.expression, node))

    def template(self, node: YamlNode) -> bool:
        """Parses every text in `node`; whether any of them is a template."""
        if isinstance(node.value, dict | list):
            children = node.value.values() if isinstance(node.value, dict) else node.value
            return any([self.template(child) for child in children])  # noqa: C419  # all are to be parsed
        if not isinstance(node.value, str):
            return False
        return not self.compiled(self._compiler.template, node).constant

    @staticmethod
    def compiled(parse: Callable[[str], Compiled], node: YamlNode) -> Compiled:
        """The text of `node` parsed. Raises PlaybookError at the line of the fault."""
        try:
            return parse(node.value)
        except TemplateSyntaxError as fault:
            what, hint = syntax_fault(fault)
            wrong(node.pos.down(fault.lineno - 1 + node.block), f"in the expression: {what}", hint)

    def _module(self, item: YamlNode) -> Module:
        keys = item.value
        found = [key for key in keys if key in self._modules]
        if len(found) > 1:
            wrong(item.keys[found[1]], f"a second module '{found[1]}' beside '{found[0]}'", "one module a task")
        if found:
            shapes.known(item, [*TASK_KEYS, found[0]], "a task")
            return self._modules[found[0]]
        unknown = [key for key in keys if key not in TASK_KEYS]
        if not unknown:
            wrong(item.pos, "the task names no module", "one of: " + ", ".join(sorted(self._modules)))
        word = unknown[0]
        if word in ELSEWHERE:
            wrong(item.keys[word], f"'{word}' is not taken here", ELSEWHERE[word])
        if word in BLOCK_KEYS:
            wrong(item.keys[word], f"'{word}' without 'block'", "it stands beside the block that it is for")
        if word in PLAY_KEYS:
            wrong(
                item.keys[word], f"'{word}' is of a play, and this is a task", "a file of plays is included at the top"
            )
        close = nearest(word, [*self._modules, *TASK_KEYS, *BLOCK_KEYS, "include"])
        hint = f"did you mean '{close}'?" if close else "modules are: " + ", ".join(sorted(self._modules))
        wrong(item.keys[word], f"unknown module '{one_line(word)}'", hint)

    def _arguments(self, module: Module, node: YamlNode, pos: Position) -> YamlNode:
        """The options of a task as a mapping of nodes, each checked as far as it is literal."""
        if module.free:
            if not shapes.mapping(node, f"'{module.name}' is a mapping of names and values"):
                wrong(pos, f"'{module.name}' sets nothing", "give names and values")
            self.variables(node)
            return node
        if node.value is None:
            node = YamlNode({}, pos)
        elif not isinstance(node.value, dict):
            if module.primary is None:
                hint = "its options stand below it" if module.options else "it has no options; write nothing after it"
                wrong(node.pos, f"'{module.name}' expects a mapping, got {node.kind()}", hint)
            node = YamlNode({module.primary: node}, pos, {module.primary: node.pos})
        for name, child in node.value.items():
            option = module.option(name, node.keys[name])
            if not option.template or not self.template(child):
                option.take(child.data(), child.pos)
        module.check_given([name for name, child in node.value.items() if child.value is not None], pos)
        return node

    def _loop(self, item: YamlNode) -> tuple[YamlNode | None, str, str | None]:
        loop, control = item.value.get("loop"), item.value.get("loop_control")
        names: dict[str, str] = {}
        if control is not None:
            if loop is None:
                wrong(item.keys["loop_control"], "'loop_control' without 'loop'", "add 'loop', or take it out")
            shapes.mapping(control, "'loop_control' is a mapping")
            shapes.known(control, LOOP_CONTROL_KEYS, "loop_control")
            names = {word: shapes.variable(node, word) for word, node in control.value.items()}
            if names.get("loop_var", "item") == names.get("index_var"):
                wrong(control.pos, "the item and its number have one name", "give 'index_var' another")
        if loop is not None and not self.template(loop) and not isinstance(loop.value, list):
            wrong(loop.pos, f"'loop' expects a list, got {loop.kind()}", 'a list, or a template such as "{{ ids }}"')
        return loop, names.get("loop_var", "item"), names.get("index_var")

    def _tries(self, node: YamlNode | None, check: Callable[[object, Position], int]) -> YamlNode | None:
        if node is not None and not self.template(node):
            check(node.value, node.pos)
        return node
