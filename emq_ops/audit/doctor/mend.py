"""Mending: one script a finding, which looks again and changes something only if it finds the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from emq_ops.audit.doctor.finding import FLOW, KEY, LANE, Finding
from emq_ops.protocol.errors import ServerError, SlotMovingError, WireError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

_OUTCOMES = {1: "mended", 0: "gone", -1: "left"}


@dataclass(frozen=True, slots=True)
class Mended:
    """What became of a finding. `outcome`: ``mended``; ``gone`` (it was so no longer, nothing was changed); ``left``
    (it can't be mended without losing something, or must be decided by a person; `why`)."""

    finding: Finding
    outcome: str
    why: str = ""


def may_mend(finding: Finding, also: frozenset[str] = frozenset()) -> bool:
    """Whether `mend` may act: there is a mending, and it is safe or asked for by name."""
    about = finding.about
    return about.mending is not None and (about.safe or about.name in also)


def mend(server: Server, findings: Iterable[Finding], *, also: frozenset[str] = frozenset()) -> Iterator[Mended]:
    """Mends the findings, one script each, and yields what became of each. `also`: kinds to mend though they are not
    safe by themselves. Raises what the server raises, but for refusals of single things, and for queues whose slot is
    moving, which are ``left``."""
    moving: dict[str, str] = {}
    for finding in sorted(findings, key=_order):
        if not may_mend(finding, also):
            why = "only a person can decide this" if finding.about.mending is None else "not safe unless asked for"
            yield Mended(finding, "left", why)
            continue
        if finding.queue in moving:
            yield Mended(finding, "left", moving[finding.queue])
            continue
        try:
            outcome = _OUTCOMES[int(_run(server, finding))]
        except SlotMovingError as fault:
            moving[finding.queue] = fault.what
            yield Mended(finding, "left", fault.what)
        except (WireError, ServerError) as fault:
            yield Mended(finding, "left", str(fault))
        else:
            yield Mended(finding, outcome, "something would be lost" if outcome == "left" else "")


def _order(finding: Finding) -> tuple[int, str, bytes]:
    # Jobs first: their mends settle lanes too. Rows without attempts before the sets that they stand in.
    rank = {LANE: 1, KEY: 2}.get(finding.place, 0)
    return rank, finding.queue, finding.subject


def _run(server: Server, finding: Finding) -> int:
    keys = keys_of(finding.queue)
    what: list[Arg] = [finding.subject, finding.kind]
    if finding.place.startswith(FLOW):
        script = "doctor_mend_flow"
        what.append(finding.place.removeprefix(FLOW))
    elif finding.place == LANE:
        script = "doctor_mend_lane"
    elif finding.place == KEY:
        script = "doctor_mend_key"
    else:
        script = "doctor_mend_job"
        what.insert(0, finding.place)
    reply: int = server.run(load(script), [keys.active], [keys.base, *what])
    return reply
