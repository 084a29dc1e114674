"""Modules that touch no queue: assert, debug, fail, set_fact."""

from __future__ import annotations

from typing import Any, ClassVar

from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import Decision
from emq_ops.playbook.errors import TaskFailure
from emq_ops.playbook.options import ANY, CONDITIONS, REQUIRED, TEXT, Option
from emq_ops.playbook.registry import Module
from emq_ops.syntax.expressions import text_of


class Assert(Module):
    """Fails where a condition does not hold."""

    name = "assert"
    summary = "Fails unless every condition holds."
    check = "would not change; fails in check mode too"
    acts = False
    offline = True
    primary = "that"
    options = (
        Option("that", CONDITIONS, "expression(s) that must all be true", REQUIRED, template=False),
        Option("fail_msg", TEXT, "what to say when one is not"),
        Option("success_msg", TEXT, "what to say when all are"),
    )
    returns: ClassVar = {"assertions": "how many conditions were looked at"}

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Looks at the conditions, which the runner has evaluated."""
        for source, holds in options["that"]:
            if not holds:
                raise TaskFailure(options["fail_msg"] or f"it does not hold that {source}")
        count = len(options["that"])
        return Decision(message=options["success_msg"] or "", returns={"assertions": count})


class Debug(Module):
    """Says something."""

    name = "debug"
    summary = "Says a message or shows a value."
    check = "would not change"
    acts = False
    offline = True
    primary = "msg"
    options = (
        Option("msg", ANY, "what to say: a text, or any value"),
        Option("var", ANY, 'a value to show, such as "{{ found }}"'),
    )
    exclusive = (("msg", "var"),)
    returns: ClassVar = {"msg": "the message"}

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """The message."""
        value = options["msg"] if options["var"] is None else options["var"]
        return Decision(message="" if value is None else text_of(value))


class Fail(Module):
    """Fails."""

    name = "fail"
    summary = "Fails with a message; guard it with `when`."
    check = "would not change; fails in check mode too"
    acts = False
    offline = True
    primary = "msg"
    options = (Option("msg", TEXT, "what to say", "failed as the playbook asked"),)

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Fails."""
        raise TaskFailure(options["msg"])


class SetFact(Module):
    """Sets variables for the rest of the run, on this queue."""

    name = "set_fact"
    summary = "Sets variables of this queue, for the rest of the run."
    check = "would not change; the variables are set in check mode too"
    acts = False
    offline = True
    free = True
    returns: ClassVar = {"facts": "the variables and their values"}

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """The variables; the runner keeps them."""
        return Decision(returns={"facts": options})
