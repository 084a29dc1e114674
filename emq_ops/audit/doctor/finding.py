"""One thing that is wrong in a queue's keys."""

from __future__ import annotations

from dataclasses import dataclass

from emq_ops.audit.doctor.kinds import KINDS, DamageKind

LANE, KEY = "lane", "key"
"""Places of findings that are no jobs."""
FLOW = "flow "
"""The place of a finding about a flow begins so; then how many children the parent waited for."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `subject`: a job, a lane, or a key's name after the base; `place`: the set that a job
    was seen in (empty: found by its row), LANE or KEY; `detail`: what was seen."""

    queue: str
    kind: str
    subject: bytes
    detail: str
    place: str = ""

    @property
    def about(self) -> DamageKind:
        return KINDS[self.kind]

    @property
    def key(self) -> tuple[str, str, bytes]:
        return self.queue, self.kind, self.subject
