"""How a plan is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emq_ops.deploy.variables import Digests

Env = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is made. `env`: where references are looked up; `revert`: addresses, queues or ``all``: drift that is
    to be put back; `kind`: apply, rollback, destroy; `offline`: nothing was read of the server; `only`: queues
    of which drift is told and put back, None: all; `digests`: tell what references gave when they were applied."""

    env: Env
    revert: Sequence[str] = ()
    kind: str = "apply"
    offline: bool = False
    only: frozenset[str] | None = None
    digests: Digests = field(default_factory=lambda: Digests(b""))
