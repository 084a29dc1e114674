"""The modules: what a task can do. Each documents itself (`emq-ops play --modules`)."""

from __future__ import annotations

from emq_ops.playbook.modules import logic
from emq_ops.playbook.registry import Module

MODULES: dict[str, Module] = {
    module.name: module
    for module in (
        logic.Assert(),
        logic.Debug(),
        logic.Fail(),
        logic.SetFact(),
    )
}
"""Every module by name. ``include`` is part of the language and not here."""
