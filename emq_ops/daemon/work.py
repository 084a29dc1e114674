"""Running one task's pass: the frame that commands and playbooks call too, with the daemon's lease and stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from emq_ops.daemon.tasks import PassTask
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.frame import LeaseSource, PassOutcome, run_pass
from emq_ops.passes.frame.order import Order
from emq_ops.protocol import deadline

_NO_LIMIT_SECONDS = 3.15e7


class PassRunner:
    """Runs passes. Thread-safe; the caller sees to it that a task runs once at a time."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def run(self, task: PassTask, lease: LeaseSource, trigger: str = "daemon", **more: Any) -> PassOutcome:
        """One run of `task`, within its timeout. `more`: what else the order says (`only`, `applied`, `force`). Raises
        what the frame raises."""
        order = Order(task.queue, task.policy, task.target, trigger, lease_ms=task.lease_ms)
        with deadline.deadline(task.timeout_s or _NO_LIMIT_SECONDS):
            return run_pass(self.services, task.what, replace(order, **more), lease)
